import type { Clock, RecordsStore } from '../../gateway/store-ports.js';
import { recordPrefixes } from '../projection/current-records.js';
import type { RegistryDatabase } from '../registry-database.js';
import { holdBack } from './held-back.js';

/** Maximum number of entries in the list of the database's restores. Older entries are deleted. */
export const mostRestores = 100;
const pageLength = 500;
/** How long a gateway's report of inactive records (whose status denies requests) stays in the store: 24 hours. */
const reportMilliseconds = 86_400_000;

/** Dependencies of the functions that handle a restored database. */
export interface RestoreOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'names' | 'read' | 'reports' | 'removeReports'>;
  readonly clock: Clock;
}

/**
 * Stores an entry about a certain or possible restore of the database from a backup. The database could lack changes
 * that were made after its newest event.
 * @param isCertain whether the restore is certain, because the store or a gateway has a change that the database lacks
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
 * Restricts each key and merchant that has fewer rights and a later revision (number of a change) in the store than in
 * the database.
 * @param uncompared the highest revision that could stand for different changes in the store and in the database, see
 * `holdBack`
 * @param mayGoOn called between two pages; if it returns false, the function stops
 * @returns the number of restricted records; null if it was stopped
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
 * Deactivates each key and merchant that a gateway reports as inactive, if the report has a later revision (number of a
 * change) than the database. Finally deletes the reports.
 * @param uncompared the highest revision that could stand for different changes in a report and in the database, see
 * `holdBack`
 * @returns the number of deactivated records
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
    // Ignores an unsealed (unauthenticated) report of a gateway that seals its messages. An attacker could forge such a
    // report to deactivate valid keys.
    if (!isSealed && mustSeal.has(instanceId)) continue;
    count += await holdBack({ ...options, onChange }, entries, instanceId, uncompared);
  }
  if (names.length > 0) await store.removeReports(names);
  return count;
}

/**
 * Handles late reports of inactive records (whose status denies requests). They come from gateways that could not reach
 * the store before its rebuild (complete rewrite). If a restore of the database was found in the last 24 hours, passes
 * the reports to `holdBackFromReports`. Otherwise the database lacks no changes, so the reports are only deleted.
 * @returns the number of deactivated records
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
