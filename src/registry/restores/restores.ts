import type { Clock, RecordsStore } from '../../gateway/store-ports.js';
import { newestEvent } from '../events/repository.js';
import { recordPrefixes } from '../projection/current-records.js';
import type { RegistryDatabase } from '../registry-database.js';
import { holdBack, type HoldBackContext } from './held-back.js';

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
 * that were made after its newest event. Call this with a transaction as `database`.
 * @param isCertain whether the restore is certain, because the store or a gateway has a change that the database lacks
 */
export async function noteRestore(
  { database, clock }: Pick<RestoreOptions, 'database' | 'clock'>,
  isCertain: boolean,
): Promise<void> {
  // Takes the newest event: `at` has no index, so a search for the latest `at` of all events would take too long here.
  const newest = await newestEvent(database);
  const row = { found_at: clock.now(), newest_at: newest?.at ?? null, is_certain: isCertain ? 1 : 0 };
  const { seq } = await database.insertInto('restores').values(row).returning('seq').executeTakeFirstOrThrow();
  await database
    .deleteFrom('restores')
    .where('seq', '<=', seq - mostRestores)
    .execute();
}

/**
 * Restricts each key and merchant that has fewer rights in the store than in the database because of a change that the
 * database lacks.
 * @param uncompared the highest revision that could stand for different changes in the store and in the database (see
 *   `laterRecords`)
 * @param mayGoOn called after each full page of records; if it returns false, the function stops
 * @returns the number of restricted records; null if the function was stopped
 */
export async function holdBackFromStore(
  options: RestoreOptions,
  uncompared: number,
  mayGoOn: () => Promise<boolean>,
): Promise<number | null> {
  const { store } = options;
  const context = await contextOf(options);
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
 * Restricts each key and merchant that has fewer rights in a gateway's report than in the database because of a change
 * that the database lacks. Then deletes the reports.
 * @param uncompared the highest revision that could stand for different changes in a report and in the database (see
 *   `laterRecords`)
 * @param onChange called after each database change that restricts records
 * @returns the number of restricted records
 */
export async function holdBackFromReports(
  options: RestoreOptions,
  uncompared: number,
  onChange?: () => void,
): Promise<number> {
  const { store } = options;
  const context = await contextOf(options, onChange);
  const isCertain = await isRestored(options);
  const names: string[] = [];
  let count = 0;
  const sealing = await options.database.selectFrom('gateways').select('instance_id').where('seals', '=', 1).execute();
  const mustSeal = new Set(sealing.map(({ instance_id }) => instance_id));
  for await (const { name, instanceId, revision, entries, isSealed } of store.reports()) {
    names.push(name);
    // Ignores an unsealed (unauthenticated) report of a gateway that seals its messages. An attacker could forge such a
    // report to deactivate valid keys.
    if (!isSealed && mustSeal.has(instanceId)) continue;
    // Gateways know only announced changes, and a change in the outbox is not yet announced. If a gateway nevertheless
    // knows the revision of a change in the outbox, a change that the restore has lost probably had this revision too.
    count += await holdBack(context, entries, instanceId, isCertain ? Math.max(uncompared, revision) : uncompared);
  }
  if (names.length > 0) await store.removeReports(names);
  return count;
}

/**
 * Handles late reports of inactive records (whose status denies requests). A report is late if its gateway could not
 * reach the store before the rebuild of the store. If a restore of the database was found in the last 24 hours, passes
 * the reports to `holdBackFromReports`. Without such a restore, this function only deletes the reports.
 * @returns the number of restricted records
 */
export async function holdBackLate(options: RestoreOptions, onChange: () => void): Promise<number> {
  const { database, store, clock } = options;
  const newest = await newestRestore(database);
  if (newest === undefined || clock.now() - newest.found_at > reportMilliseconds) {
    const names: string[] = [];
    for await (const { name } of store.reports()) names.push(name);
    if (names.length > 0) await store.removeReports(names);
    return 0;
  }
  return holdBackFromReports(options, 0, onChange);
}

/** Whether the newest restore of the database is certain, and was found in the last 24 hours. */
export async function isRestored({ database, clock }: Pick<RestoreOptions, 'database' | 'clock'>): Promise<boolean> {
  const newest = await newestRestore(database);
  return newest?.is_certain === 1 && clock.now() - newest.found_at <= reportMilliseconds;
}

/** Returns the dependencies of `holdBack`. If a record is held back, the newest restore becomes certain. */
async function contextOf(options: RestoreOptions, onChange: () => void = () => undefined): Promise<HoldBackContext> {
  return { ...options, onChange, restore: (await newestRestore(options.database))?.seq };
}

async function newestRestore(
  database: RegistryDatabase,
): Promise<{ readonly seq: number; readonly found_at: number; readonly is_certain: number } | undefined> {
  const columns = ['seq', 'found_at', 'is_certain'] as const;
  const newest = database.selectFrom('restores').select(columns).orderBy('seq', 'desc').limit(1);
  return newest.executeTakeFirst();
}
