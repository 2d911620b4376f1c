import { decodeTime, encodeTime } from 'ulid';
import type { Position, StoredMeta } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';

/** What the database stores about its own changes, and about the Redis servers that contain its records. */
export interface History {
  /**
   * Id of the current complete rewrite of the store. A new generation begins when changes or records may have been
   * lost.
   */
  readonly generation: string;
  /** The revision of the newest change. */
  readonly revision: number;
  /**
   * Run ids of the Redis servers that were last found consistent with this database; null before the first comparison.
   */
  readonly servers: readonly string[] | null;
  /** Whether the roster contains every gateway that may use a record. */
  readonly isOpen: boolean;
  /** When `isOpen` becomes true, in milliseconds since 1970; null if it is already true or the time is unknown. */
  readonly opensAt: number | null;
  /** The newest change that was announced to gateways in this generation; null before the first. */
  readonly published: Position | null;
  /**
   * Ids of secrets. Each record in the store is sealed (authenticated) with one of them. Empty if a record may be
   * unsealed.
   */
  readonly sealedBy: readonly string[];
}

/** The name of a change that an earlier release made without a name. */
export const unnamedChange = 'unnamed';

/** Reads the generation, the newest change and the state of the store. */
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

/** Returns the name of the change with this revision; null if this database does not know that change. */
export async function changeOf(
  database: RegistryDatabase,
  { published }: History,
  revision: number,
): Promise<string | null> {
  if (published?.revision === revision) return published.change;
  const rows = await database.selectFrom('outbox').select('change').where('revision', '=', revision).execute();
  // Outbox rows that `Lease.finish` puts back have no name.
  return rows.length === 0 ? null : (rows.find(({ change }) => change !== null)?.change ?? unnamedChange);
}

/** Number of former generations to keep besides the first. A store with an older one counts as having lost data. */
const storedGenerations = 1000;

/**
 * Begins a new generation, in which no gateway has acknowledged a change yet. No change counts as in force before the
 * store was compared with the database. Call this in a transaction.
 * @param revision the highest revision known to any source; the next change gets a higher one
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
      // Keeps the current revision if it is higher: another change may have been made meanwhile.
      value: it.case().when('value', '<', revision).then(revision).else(it.ref('value')).end(),
    }))
    .execute();
}

/** Deletes the oldest former generations, except for the first. Their names sort by time. */
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
 * Stores the revision and name of the newest change that was announced to gateways. Call this in the transaction that
 * removes the change from the outbox.
 */
export async function notePublished(transaction: RegistryDatabase, { revision, change }: Position): Promise<void> {
  await transaction
    .updateTable('revision')
    .set((it) => ({
      ...{ published_revision: revision, published_change: change },
      // A release without seals may have published a change in between. The records are then no longer all sealed.
      sealed_change: it.case().when('sealed_change', '=', it.ref('published_change')).then(change).else(null).end(),
    }))
    .execute();
}

/**
 * Stores that each record in the store is sealed with one of these secrets.
 * @param sealedBy the ids of the secrets; empty if a record may be unsealed
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
 * Returns the generation in the store's meta record, also while the store is being filled. Null if it names no
 * generation.
 */
export function generationIn(meta: StoredMeta | null): string | null {
  if (meta === null) return null;
  if (meta.generation !== null) return meta.generation;
  return meta.filling ?? null;
}

const sortable = /^r_([0-9A-HJKMNP-TV-Z]{26})$/;
const latestTime = 2 ** 48 - 1;

/**
 * Returns a name for a new generation that sorts after all known ones. The name from the clock may sort too early if
 * the clock was set back, and gateways reject records of an earlier generation.
 * @param made the name according to the clock
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
 * Stores the servers that are consistent with this database.
 * @param opensAt when the wait for unknown gateways ends; null if every gateway that may use a record is known
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

/** Whether this generation is the current one or a former one of the database. */
export async function hasGeneration(database: RegistryDatabase, generation: string): Promise<boolean> {
  const current = database.selectFrom('revision').select('generation').where('generation', '=', generation);
  const former = database.selectFrom('former_generations').select('generation').where('generation', '=', generation);
  return (await current.unionAll(former).executeTakeFirst()) !== undefined;
}

/** Returns the id that a database shares with all its backups: the name of its first generation. */
export async function databaseName(database: RegistryDatabase): Promise<string> {
  const rows = await database
    .selectFrom('revision')
    .select('generation')
    .unionAll(database.selectFrom('former_generations').select('generation'))
    .execute();
  return rows.map(({ generation }) => generation).reduce((one, other) => (one < other ? one : other));
}
