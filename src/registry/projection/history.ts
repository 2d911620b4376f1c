import { decodeTime, encodeTime } from 'ulid';
import type { Position, StoredMeta } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';

/** Where the database's history stands. */
export interface History {
  /** The name of one unbroken history: where something may have been lost, another one begins. */
  readonly generation: string;
  /** The number of the newest change. */
  readonly revision: number;
  /** The run ids of the servers that were last found to hold what this database says; null where that is to be found out. */
  readonly servers: readonly string[] | null;
  /** Whether every gateway that may use a record is known. */
  readonly isOpen: boolean;
  /** When that will be, in milliseconds since 1970; null where it is, or is not known yet. */
  readonly opensAt: number | null;
  /** The newest change that was published in this generation; null where none was. */
  readonly published: Position | null;
  /** The names of the secrets by one of which each record in the store is sealed; empty where one may be unsealed. */
  readonly sealedBy: readonly string[];
}

/** The name of a change that an earlier release made. */
export const unnamedChange = 'unnamed';

/** Reads where the history stands. */
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

/** The name of the change of a number, as far as this database knows it; null where it does not. */
export async function changeOf(
  database: RegistryDatabase,
  { published }: History,
  revision: number,
): Promise<string | null> {
  if (published?.revision === revision) return published.change;
  const rows = await database.selectFrom('outbox').select('change').where('revision', '=', revision).execute();
  // What was put back to be written once more has lost the name.
  return rows.length === 0 ? null : (rows.find(({ change }) => change !== null)?.change ?? unnamedChange);
}

/** Names of former generations that are kept beside the first one: a store that has an older one is taken for one that lost something. */
const keptGenerations = 1000;

/**
 * Begins a new generation, which nobody has acknowledged anything in. Until a store was compared with it nothing is in force.
 * Belongs in a transaction.
 * @param revision one that somebody knows; the next change has a higher one
 */
export async function beginGeneration(
  transaction: RegistryDatabase,
  { generation, revision }: { readonly generation: string; readonly revision: number },
): Promise<void> {
  await transaction
    .insertInto('former_generations')
    .columns(['generation'])
    // Without a condition SQLite takes what follows for a join.
    .expression(transaction.selectFrom('revision').select('generation').where('id', '=', 1))
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  await forgetGenerations(transaction);
  await transaction
    .updateTable('revision')
    .set((it) => ({
      ...{ generation, servers: null, is_open: 0, opens_at: null, published_revision: 0, published_change: null },
      ...{ sealed_by: null, sealed_change: null },
      // Changes are counted up meanwhile.
      value: it.case().when('value', '<', revision).then(revision).else(it.ref('value')).end(),
    }))
    .execute();
}

/** The names sort in the order of their histories. */
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
        .offset(keptGenerations - 1)
        .limit(1),
    )
    .where(
      'generation',
      '>',
      former.select((it) => it.fn.min('generation').as('first')),
    )
    .execute();
}

/** Takes down what was published. Belongs in the transaction that removes it from the outbox. */
export async function notePublished(transaction: RegistryDatabase, { revision, change }: Position): Promise<void> {
  await transaction
    .updateTable('revision')
    .set((it) => ({
      ...{ published_revision: revision, published_change: change },
      // Unless an earlier release has published in between, which seals nothing.
      sealed_change: it.case().when('sealed_change', '=', it.ref('published_change')).then(change).else(null).end(),
    }))
    .execute();
}

/** Takes down that each record in the store is sealed by one of these secrets. @param sealedBy their names; empty: one may be unsealed */
export async function noteSealed(transaction: RegistryDatabase, sealedBy: readonly string[]): Promise<void> {
  await transaction
    .updateTable('revision')
    .set((it) => ({
      sealed_by: sealedBy.length === 0 ? null : sealedBy.join(),
      sealed_change: it.ref('published_change'),
    }))
    .execute();
}

/** The generation of the records that a store has, or is being filled with; null where it names none. */
export function statedGeneration(meta: StoredMeta | null): string | null {
  if (meta === null) return null;
  if (meta.generation !== null) return meta.generation;
  return meta.filling ?? null;
}

const sortable = /^r_([0-9A-HJKMNP-TV-Z]{26})$/;
const latestTime = 2 ** 48 - 1;

/**
 * A name for a new generation that sorts behind those that are known: gateways believe no record of an earlier one, and clocks go back.
 * @param made by the clock
 */
export function laterGeneration(made: string, known: readonly (string | null | undefined)[]): string {
  const latest = known.reduce<string>((one, other) => (typeof other === 'string' && other > one ? other : one), '');
  if (made > latest) return made;
  const [, ulid = ''] = sortable.exec(latest) ?? [];
  if (ulid === '' || !sortable.test(made)) return made;
  const time = decodeTime(ulid);
  return time >= latestTime ? made : `r_${encodeTime(time + 1)}${made.slice(-16)}`;
}

/** Takes down which servers hold what this database says. @param opensAt null: every gateway that may use a record is known */
export async function noteServers(
  transaction: RegistryDatabase,
  { servers, opensAt }: { readonly servers: readonly string[]; readonly opensAt: number | null },
): Promise<void> {
  await transaction
    .updateTable('revision')
    .set({ servers: servers.join(), is_open: opensAt === null ? 1 : 0, opens_at: opensAt })
    .execute();
}

/** Whether the database has, or once had, this history. */
export async function hasHad(database: RegistryDatabase, generation: string): Promise<boolean> {
  const current = database.selectFrom('revision').select('generation').where('generation', '=', generation);
  const former = database.selectFrom('former_generations').select('generation').where('generation', '=', generation);
  return (await current.unionAll(former).executeTakeFirst()) !== undefined;
}

/** The name of the database: that of its first history, which every backup of it has as well. */
export async function databaseName(database: RegistryDatabase): Promise<string> {
  const rows = await database
    .selectFrom('revision')
    .select('generation')
    .unionAll(database.selectFrom('former_generations').select('generation'))
    .execute();
  return rows.map(({ generation }) => generation).reduce((one, other) => (one < other ? one : other));
}
