import { decodeTime, encodeTime } from 'ulid';
import type { Position, StoredMeta } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';

/** What the database stores about its own changes, and about the Redis servers that contain its records. */
export interface History {
  /**
   * Id of the current generation. Each complete rewrite of the store begins a new generation. A rewrite is needed if
   * the store is not in the state that the database has recorded for it: changes or records might have been lost.
   */
  readonly generation: string;
  /** The revision (number) of the newest change. */
  readonly revision: number;
  /**
   * Run ids of the Redis servers that were last found consistent with this database; null before the first comparison.
   */
  readonly servers: readonly string[] | null;
  /**
   * Whether every gateway that could use a cached record is in the roster (the list of gateways in the database). While
   * false, no change counts as in force everywhere.
   */
  readonly isOpen: boolean;
  /** When `isOpen` becomes true, in milliseconds since 1970; null if it is already true or the time is unknown. */
  readonly opensAt: number | null;
  /** The newest change that was announced to gateways in the current generation; null before the first announcement. */
  readonly published: Position | null;
  /**
   * Ids of the secrets with which all records in the store are sealed (authenticated). Empty if some record might have
   * no seal.
   */
  readonly sealedBy: readonly string[];
}

/**
 * Placeholder for the name of a change whose outbox rows have no name: an earlier release stored these rows, or
 * `Lease.finish` put them back.
 */
export const unnamedChange = 'unnamed';

/** Reads the current generation, the newest change and the state of the store, as the database has recorded them. */
export async function readHistory(database: RegistryDatabase): Promise<History> {
  const row = await database.selectFrom('revision').selectAll().executeTakeFirstOrThrow();
  return {
    generation: row.generation,
    revision: row.value,
    servers: row.servers === null ? null : row.servers.split(','),
    isOpen: row.is_open === 1,
    opensAt: row.opens_at,
    published:
      row.published_change === null ? null : { revision: row.published_revision, change: row.published_change },
    sealedBy: row.sealed_change === row.published_change ? (row.sealed_by?.split(',') ?? []) : [],
  };
}

/**
 * Returns the name of the change with this revision (number). The database keeps only the names of the newest published
 * (announced) change and of the changes in the outbox, which are still to be written. Null for any other change.
 */
export async function changeOf(
  database: RegistryDatabase,
  { published }: History,
  revision: number,
): Promise<string | null> {
  if (published?.revision === revision) return published.change;
  const rows = await database.selectFrom('outbox').select('change').where('revision', '=', revision).execute();
  // `Lease.finish` puts rows back into the outbox without the name of the change. So perhaps only some of the rows have
  // the name.
  return rows.length === 0 ? null : (rows.find(({ change }) => change !== null)?.change ?? unnamedChange);
}

/**
 * Number of earlier generations whose ids are kept, in addition to the id of the first generation. If a store names a
 * generation whose id was deleted, the database counts as having lost changes.
 */
const storedGenerations = 1000;

/**
 * Begins a new generation. From then on, gateways' acknowledgements of changes in the previous generation are ignored.
 * No change counts as in force before the rewrite of the store is complete. Call this in a transaction.
 * @param revision the highest revision that the store, a gateway or this process knows; later changes get higher ones
 */
export async function beginGeneration(
  transaction: RegistryDatabase,
  { generation, revision }: { readonly generation: string; readonly revision: number },
): Promise<void> {
  await transaction
    .insertInto('former_generations')
    .columns(['generation'])
    // Without `where`, SQLite would parse the ON of the conflict clause as part of a join.
    .expression(transaction.selectFrom('revision').select('generation').where('id', '=', 1))
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  await forgetGenerations(transaction);
  await transaction
    .updateTable('revision')
    .set((it) => ({
      ...{ generation, servers: null, is_open: 0, opens_at: null, published_revision: 0, published_change: null },
      ...{ sealed_by: null, sealed_change: null },
      // Keeps the current revision (number of the newest change) if it is higher, because another change might have
      // been made meanwhile.
      value: it.case().when('value', '<', revision).then(revision).else(it.ref('value')).end(),
    }))
    .execute();
}

/**
 * Deletes the ids of the oldest replaced generations. The ids sort by time. Keeps the id of the first generation, which
 * identifies the database.
 */
async function forgetGenerations(transaction: RegistryDatabase): Promise<void> {
  const former = transaction.selectFrom('former_generations');
  await transaction
    .deleteFrom('former_generations')
    .where(
      'generation',
      '<',
      former
        .select('generation')
        .orderBy('generation', 'desc')
        .offset(storedGenerations - 1)
        .limit(1),
    )
    .where(
      'generation',
      '>',
      former.select((it) => it.fn.min('generation').as('first')),
    )
    .execute();
}

/**
 * Stores the revision and the name of the newest change that was announced to gateways. Call this at the end of a
 * rebuild, or in the transaction that removes the change from the outbox.
 */
export async function notePublished(transaction: RegistryDatabase, { revision, change }: Position): Promise<void> {
  await transaction
    .updateTable('revision')
    .set((it) => ({
      ...{ published_revision: revision, published_change: change },
      // If `sealed_change` differs from the stored `published_change`, a release without seals published the last
      // change. The records of that change have no seal, so this stores null.
      sealed_change: it.case().when('sealed_change', '=', it.ref('published_change')).then(change).else(null).end(),
    }))
    .execute();
}

/**
 * Stores in the table `revision` the ids of the secrets that seal (authenticate) the records of the store.
 * @param sealedBy the ids of the secrets; empty if some record might have no seal
 */
export async function noteSealed(transaction: RegistryDatabase, sealedBy: readonly string[]): Promise<void> {
  await transaction
    .updateTable('revision')
    .set((it) => ({
      sealed_by: sealedBy.length === 0 ? null : sealedBy.join(),
      sealed_change: it.ref('published_change'),
    }))
    .execute();
}

/**
 * Returns the id of the generation in the meta record (the store's description), also while the store is being filled.
 * Null if the meta record is missing or names no generation.
 */
export function generationIn(meta: StoredMeta | null): string | null {
  if (meta === null) return null;
  if (meta.generation !== null) return meta.generation;
  return meta.filling ?? null;
}

const sortable = /^r_([0-9A-HJKMNP-TV-Z]{26})$/;
const latestTime = 2 ** 48 - 1;

/**
 * Returns an id for a new generation. Gateways reject records of an earlier generation, whose id sorts before the id of
 * a later one. So the new id sorts after all known ids, even if the clock was set back.
 * @param made an id made from the current time
 */
export function laterGeneration(made: string, known: readonly (string | null | undefined)[]): string {
  const latest = known.reduce<string>((one, other) => (typeof other === 'string' && other > one ? other : one), '');
  if (made > latest) return made;
  const [, ulid = ''] = sortable.exec(latest) ?? [];
  if (ulid === '' || !sortable.test(made)) return made;
  const time = decodeTime(ulid);
  return time >= latestTime ? made : `r_${encodeTime(time + 1)}${made.slice(-16)}`;
}

/**
 * Stores which Redis servers (by their run ids) are now consistent with this database.
 * @param opensAt when the wait for unknown gateways ends; null if every gateway that could use a cached record is known
 */
export async function noteServers(
  transaction: RegistryDatabase,
  { servers, opensAt }: { readonly servers: readonly string[]; readonly opensAt: number | null },
): Promise<void> {
  await transaction
    .updateTable('revision')
    .set({ servers: servers.join(), is_open: opensAt === null ? 1 : 0, opens_at: opensAt })
    .execute();
}

/** Whether the database knows this generation as the current one or as an earlier one. */
export async function hasGeneration(database: RegistryDatabase, generation: string): Promise<boolean> {
  const current = database.selectFrom('revision').select('generation').where('generation', '=', generation);
  const former = database.selectFrom('former_generations').select('generation').where('generation', '=', generation);
  return (await current.unionAll(former).executeTakeFirst()) !== undefined;
}

/** Returns the id that a database shares with all its backups: the id of its first generation. */
export async function databaseName(database: RegistryDatabase): Promise<string> {
  const rows = await database
    .selectFrom('revision')
    .select('generation')
    .unionAll(database.selectFrom('former_generations').select('generation'))
    .execute();
  return rows.map(({ generation }) => generation).reduce((one, other) => (one < other ? one : other));
}
