import type { Clock, RecordsStore } from '../ports.js';
import { recordPrefixes } from '../projection/current-records.js';
import type { RegistryDatabase } from '../registry-database.js';
import { holdBack } from './held-back.js';

const pageLength = 500;

/** What is worked with after the database went back. */
export interface RestoreOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'names' | 'read'>;
  readonly clock: Clock;
}

/**
 * Takes down that changes may be unknown: those since the newest moment that the database knows of.
 * @param isCertain whether somebody knows a change that the database lacks
 */
export async function noteRestore({ database, clock }: RestoreOptions, isCertain: boolean): Promise<void> {
  const { newest } = await database
    .selectFrom('events')
    .select((it) => it.fn.max('at').as('newest'))
    .executeTakeFirstOrThrow();
  const row = { found_at: clock.now(), newest_at: (newest as number | null) ?? null, is_certain: isCertain ? 1 : 0 };
  await database.insertInto('restores').values(row).execute();
}

/**
 * Holds back everything that the store knows as inactive under a later revision.
 * @param mayGoOn asked between two pages
 * @returns how many; null where it was not to go on
 */
export async function holdBackFromStore(
  options: RestoreOptions,
  mayGoOn: () => Promise<boolean>,
): Promise<number | null> {
  const { store } = options;
  const context = { ...options, onChange: () => undefined };
  let count = 0;
  for (const prefix of recordPrefixes) {
    let page: string[] = [];
    const hold = async (): Promise<void> => {
      count += await holdBack(context, await store.read(page), 'store');
      page = [];
    };
    for await (const name of store.names(prefix)) {
      page.push(name);
      if (page.length < pageLength) continue;
      await hold();
      if (!(await mayGoOn())) return null;
    }
    await hold();
  }
  return count;
}
