import { decodeTime, encodeTime } from 'ulid';
import type { Position, StoredMeta } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';

/** The state of the database's history. */
export interface History {
  /** The name of one unbroken history. After a possible loss another generation begins. */
  readonly generation: string;
  /** The revision of the newest change. */
  readonly revision: number;
  /** Run ids of the servers that were last found consistent with this database; null until they are compared. */
  readonly servers: readonly string[] | null;
  /** Whether every gateway that may use a record is known. */
  readonly isOpen: boolean;
  /** When it will be, in milliseconds since 1970; null if it is, or if the time is not known yet. */
  readonly opensAt: number | null;
  /** The newest change published in this generation; null before the first. */
  readonly published: Position | null;
  /** Ids of secrets: each record in the store is sealed with one of them. Empty if a record may be unsealed. */
  readonly sealedBy: readonly string[];
}

/** The name of a change by an earlier release. */
export const unnamedChange = 'unnamed';

/** Reads the state of the history. */
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

/** The name of the change with this revision; null if this database does not know it. */
export async function changeOf(
  database: RegistryDatabase,
  { published }: History,
  revision: number,
): Promise<string | null> {
  if (published?.revision === revision) return published.change;
  const rows = await database.selectFrom('outbox').select('change').where('revision', '=', revision).execute();
  // Records put back into the outbox have lost the name.
  return rows.length === 0 ? null : (rows.find(({ change }) => change !== null)?.change ?? unnamedChange);
}

/** Number of former generations stored besides the first. A store with an older one counts as having lost data. */
const storedGenerations = 1000;

/**
 * Begins a new generation, in which no gateway has acknowledged anything. Nothing is in force in it until a store was
 * compared with it. Call it in a transaction.
 * @param revision the highest revision known anywhere; the next change gets a higher one
 */
export async function beginGeneration(
  transaction: RegistryDatabase,
  { generation, revision }: { readonly generation: string; readonly revision: number },
): Promise<void> {
  await transaction
    .insertInto('former_generations')
    .columns(['generation'])
    // Without the condition SQLite parses the ON of the conflict clause as a join.
    .expression(transaction.selectFrom('revision').select('generation').where('id', '=', 1))
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  await forgetGenerations(transaction);
  await transaction
    .updateTable('revision')
    .set((it) => ({
      ...{ generation, servers: null, is_open: 0, opens_at: null, published_revision: 0, published_change: null },
      ...{ sealed_by: null, sealed_change: null },
      // The revision may have grown meanwhile.
      value: it.case().when('value', '<', revision).then(revision).else(it.ref('value')).end(),
    }))
    .execute();
}

/** Deletes the oldest former generations but the first. Their names sort in order of time. */
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

/** Notes the published position. Call it in the transaction that removes the change from the outbox. */
export async function notePublished(transaction: RegistryDatabase, { revision, change }: Position): Promise<void> {
  await transaction
    .updateTable('revision')
    .set((it) => ({
      ...{ published_revision: revision, published_change: change },
      // Unless an earlier release, which seals nothing, has published in between.
      sealed_change: it.case().when('sealed_change', '=', it.ref('published_change')).then(change).else(null).end(),
    }))
    .execute();
}

/**
 * Notes that one of these secrets seals each record in the store.
 * @param sealedBy their ids; empty if a record may be unsealed
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

/** The generation of the records in a store, or with which it is being filled; null if the store names neither. */
export function generationIn(meta: StoredMeta | null): string | null {
  if (meta === null) return null;
  if (meta.generation !== null) return meta.generation;
  return meta.filling ?? null;
}

const sortable = /^r_([0-9A-HJKMNP-TV-Z]{26})$/;
const latestTime = 2 ** 48 - 1;

/**
 * A name for a new generation that sorts after all known ones: gateways believe no record of an earlier generation, and
 * clocks may go back.
 * @param made the name by the clock
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
 * Notes the servers that are consistent with this database.
 * @param opensAt null if every gateway that may use a record is known
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

/** Whether the database has, or once had, this generation. */
export async function hasGeneration(database: RegistryDatabase, generation: string): Promise<boolean> {
  const current = database.selectFrom('revision').select('generation').where('generation', '=', generation);
  const former = database.selectFrom('former_generations').select('generation').where('generation', '=', generation);
  return (await current.unionAll(former).executeTakeFirst()) !== undefined;
}

/** The name of the database: its first generation, which all its backups share. */
export async function databaseName(database: RegistryDatabase): Promise<string> {
  const rows = await database
    .selectFrom('revision')
    .select('generation')
    .unionAll(database.selectFrom('former_generations').select('generation'))
    .execute();
  return rows.map(({ generation }) => generation).reduce((one, other) => (one < other ? one : other));
}
