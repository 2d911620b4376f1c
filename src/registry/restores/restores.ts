import type { Clock, RecordsStore } from '../../gateway/store-ports.js';
import { recordPrefixes } from '../projection/current-records.js';
import type { RegistryDatabase } from '../registry-database.js';
import { holdBack } from './held-back.js';

/** More than anybody restores; the newest are kept. */
export const mostRestores = 100;
const pageLength = 500;
/** A gateway's report ends by then. */
const reportMilliseconds = 86_400_000;

/** What is worked with after the database went back. */
export interface RestoreOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'names' | 'read' | 'reports' | 'removeReports'>;
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
  await database.transaction().execute(async (transaction) => {
    const { seq } = await transaction.insertInto('restores').values(row).returning('seq').executeTakeFirstOrThrow();
    await transaction
      .deleteFrom('restores')
      .where('seq', '<=', seq - mostRestores)
      .execute();
  });
}

/**
 * Holds back everything that the store knows as inactive under a later revision.
 * @param uncompared up to which number changes may have been made before anybody compared the database; 0: none were
 * @param mayGoOn asked between two pages
 * @returns how many; null where it was not to go on
 */
export async function holdBackFromStore(
  options: RestoreOptions,
  uncompared: number,
  mayGoOn: () => Promise<boolean>,
): Promise<number | null> {
  const { store } = options;
  const context = { ...options, onChange: () => undefined };
  let count = 0;
  for (const prefix of recordPrefixes) {
    let page: string[] = [];
    const hold = async (): Promise<void> => {
      count += await holdBack(context, await store.read(page), 'store', uncompared);
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

/**
 * Holds back everything that a gateway reports as inactive under a later revision, and takes the reports away.
 * @param uncompared as in `holdBackFromStore`
 * @returns how many
 */
export async function holdBackFromReports(
  options: RestoreOptions,
  uncompared: number,
  onChange = (): void => undefined,
): Promise<number> {
  const { store } = options;
  const names: string[] = [];
  let count = 0;
  const sealing = await options.database.selectFrom('gateways').select('instance_id').where('seals', '=', 1).execute();
  const mustSeal = new Set(sealing.map(({ instance_id }) => instance_id));
  for await (const { name, instanceId, entries, isSealed } of store.reports()) {
    names.push(name);
    // Somebody else may have written it, and good keys would be held back.
    if (!isSealed && mustSeal.has(instanceId)) continue;
    count += await holdBack({ ...options, onChange }, entries, instanceId, uncompared);
  }
  if (names.length > 0) await store.removeReports(names);
  return count;
}

/**
 * Holds back what gateways report after every record was written: they could not reach the store before. Where nothing was
 * doubtful lately the database lacks nothing, and the reports are taken away.
 * @returns how many are held back
 */
export async function holdBackLate(options: RestoreOptions, onChange: () => void): Promise<number> {
  const { database, store, clock } = options;
  const newest = await database.selectFrom('restores').selectAll().orderBy('seq', 'desc').limit(1).executeTakeFirst();
  if (newest === undefined || clock.now() - newest.found_at > reportMilliseconds) {
    const names: string[] = [];
    for await (const { name } of store.reports()) names.push(name);
    if (names.length > 0) await store.removeReports(names);
    return 0;
  }
  const count = await holdBackFromReports(options, 0, onChange);
  if (count > 0) await database.updateTable('restores').set({ is_certain: 1 }).where('seq', '=', newest.seq).execute();
  return count;
}
