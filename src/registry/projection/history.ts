import { decodeTime, encodeTime } from 'ulid';
import type { Position, StoredMeta } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';

/** What the database stores about its own changes, and about the Redis servers that contain its records. */
export interface History {
  /**
   * Id of the current generation (a complete rewrite of the store). If the store is not in its recorded state, changes
   * or records might have been lost, and a new generation begins.
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
  /**
   * The newest change that was announced to gateways since the store was last rewritten completely (since this
   * generation began); null before the first announcement.
   */
  readonly published: Position | null;
  /**
   * Ids of secrets. Each record in the store is sealed (authenticated) with one of them. Empty if a record could be
   * unsealed.
   */
  readonly sealedBy: readonly string[];
}

/** Placeholder for the name of a change that an earlier release stored without a name. */
export const unnamedChange = 'unnamed';

/**
 * Reads what the database has recorded: the generation (id of a complete rewrite of the store), the newest change and
 * the state of the store.
 */
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
 * Returns the name of the change with this revision (number); null if the database no longer has, or never had, a
 * change with this revision.
 */
export async function changeOf(
  database: RegistryDatabase,
  { published }: History,
  revision: number,
): Promise<string | null> {
  if (published?.revision === revision) return published.change;
  const rows = await database.selectFrom('outbox').select('change').where('revision', '=', revision).execute();
  // `Lease.finish` puts rows back into the outbox (changes still to be written) without the name of the change. So
  // perhaps only one of several rows has the name.
  return rows.length === 0 ? null : (rows.find(({ change }) => change !== null)?.change ?? unnamedChange);
}

/**
 * Number of earlier generations (complete rewrites of the store) whose ids are kept, in addition to the first one. If a
 * store names a generation whose id was deleted, the database counts as having lost changes.
 */
const storedGenerations = 1000;

/**
 * Begins a new generation (complete rewrite of the store). From then on, gateways' acknowledgements of changes in the
 * previous generation are ignored. No change counts as in force before the rewrite is complete. Call this in a
 * transaction.
 * @param revision the highest revision (number of a change) known to any source; the next change gets a higher one
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
 * Deletes the ids of the oldest replaced generations (complete rewrites of the store). The ids sort by time. Keeps the
 * id of the first generation, which identifies the database.
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
 * Stores the revision (number) and the name of the newest change that was announced to gateways. Call this in the
 * transaction that removes the change from the outbox (changes still to be written).
 */
export async function notePublished(transaction: RegistryDatabase, { revision, change }: Position): Promise<void> {
  await transaction
    .updateTable('revision')
    .set((it) => ({
      ...{ published_revision: revision, published_change: change },
      // If the two columns differ, a release that does not seal (authenticate) records has published (announced) a
      // change meanwhile. Then not all records are sealed, so this stores null.
      sealed_change: it.case().when('sealed_change', '=', it.ref('published_change')).then(change).else(null).end(),
    }))
    .execute();
}

/**
 * Stores that each record in the store is sealed (authenticated) with one of these secrets.
 * @param sealedBy the ids of the secrets; empty if a record could be unsealed
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
 * Returns the generation (id of a complete rewrite) in the meta record (the store's description), also while the store
 * is being filled. Null if the meta record is missing or names no generation.
 */
export function generationIn(meta: StoredMeta | null): string | null {
  if (meta === null) return null;
  if (meta.generation !== null) return meta.generation;
  return meta.filling ?? null;
}

const sortable = /^r_([0-9A-HJKMNP-TV-Z]{26})$/;
const latestTime = 2 ** 48 - 1;

/**
 * Returns an id for a new generation (complete rewrite of the store). The id sorts after all known ids, because
 * gateways reject records of an earlier generation. Without this, an id from a clock that was set back would sort too
 * early.
 * @param made the id according to the clock
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

/** Whether the database knows this generation (complete rewrite of the store): the current one or an earlier one. */
export async function hasGeneration(database: RegistryDatabase, generation: string): Promise<boolean> {
  const current = database.selectFrom('revision').select('generation').where('generation', '=', generation);
  const former = database.selectFrom('former_generations').select('generation').where('generation', '=', generation);
  return (await current.unionAll(former).executeTakeFirst()) !== undefined;
}

/**
 * Returns the id that a database shares with all its backups: the id of its first generation (complete rewrite of the
 * store).
 */
export async function databaseName(database: RegistryDatabase): Promise<string> {
  const rows = await database
    .selectFrom('revision')
    .select('generation')
    .unionAll(database.selectFrom('former_generations').select('generation'))
    .execute();
  return rows.map(({ generation }) => generation).reduce((one, other) => (one < other ? one : other));
}
