import type { RecordsStore, StoredMeta, StoreSnapshot } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { changeOf, databaseName, hasGeneration, type History, generationIn, unnamedChange } from './history.js';
import { unknownStoreNames } from './pages.js';

/** Dependencies of Continuity. */
export interface ContinuityOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly longestLifetimeMilliseconds: number;
  /**
   * Resolves after the time that connected gateways need to report the inactive records that they know. Inactive
   * records are those whose status denies requests. Default: resolves at once.
   */
  readonly untilReported?: () => Promise<void>;
}

/**
 * The generation and the revision that a gateway's message names. Each complete rewrite of the store begins a new
 * generation, which has an id. A revision is the number of a change. The message proves that the change was made. If
 * the database lacks the change, the database was restored from a backup.
 */
interface Claim {
  readonly generation?: string | undefined;
  readonly revision: number;
}

/** What might have been lost when the store differs from the state that the database has recorded. */
export interface Loss {
  /** The highest revision that the store, a gateway or this process knows. */
  readonly known: number;
  /**
   * Whether the database certainly lacks changes, because the store, a gateway or this process knows changes that the
   * database does not have. If true, the database was restored from a backup.
   */
  readonly isBehind: boolean;
  /**
   * Whether the database could lack changes. Before the first change of the current generation has been announced to
   * gateways, this is true only if `isBehind` is true.
   */
  readonly isUnverified: boolean;
  /** Whether every gateway that could use a cached record is in the roster (the list of gateways in the database). */
  readonly isAccounted: boolean;
  /**
   * For how long after the rewrite of the store no change counts as in force. During this time, a gateway that is
   * missing in the roster could use old records. The same is true for a gateway that reads from a Redis server which a
   * failover has replaced.
   */
  readonly waitMilliseconds: number;
}

/** How long a gateway that does not know of a failover could read from the replaced Redis server, in milliseconds. */
const holdMilliseconds = 2_000;

/** Compares the store with the state that the database has recorded for it, and finds out what was lost. */
export class Continuity {
  readonly #options: ContinuityOptions;
  /** The state of the database when this process last found store and database consistent. */
  #last: History | null = null;
  /**
   * The generation whose rebuild this process has begun but not completed; null if there is no such generation. Also
   * null if a gateway might have been unknown when the rebuild began.
   */
  #accountedIn: string | null = null;

  constructor(options: ContinuityOptions) {
    this.#options = options;
  }

  /** Remembers that store and database were found consistent. */
  settled(history: History): void {
    this.#last = history;
    this.#accountedIn = null;
  }

  /**
   * Forgets what this process saw while it last wrote to the store. Call this if another process has written since:
   * what happened meanwhile to the store and to the database is unknown.
   */
  left(): void {
    this.#last = null;
    this.#accountedIn = null;
  }

  /**
   * Remembers the start of a generation. No gateway can join the roster before a rebuild is complete. So if all
   * gateways were known at the start, all gateways are known after a failed rebuild too.
   */
  begun(generation: string, { isAccounted }: Loss): void {
    this.#accountedIn = isAccounted ? generation : null;
  }

  /**
   * Whether the store is in the state that this database has recorded for it.
   * @param isForged whether another Redis client wrote the meta record (the store's description). If true, that record
   * is not compared
   */
  async holds(snapshot: StoreSnapshot, history: History, isForged = false): Promise<boolean> {
    const { meta, servers, revision, change, isWhole } = snapshot;
    if (!isWhole || history.published === null || history.servers?.join() !== servers.join()) return false;
    const isOwn = meta?.generation === history.generation && meta.servers?.join() === servers.join();
    if (!isOwn && !isForged) return false;
    if (revision < history.published.revision || revision > history.revision) return false;
    return change !== null && change === (await changeOf(this.#options.database, history, revision));
  }

  /** Finds out what the database might have lost. Call this if a store is not in its recorded state. */
  async assess(snapshot: StoreSnapshot, history: History): Promise<Loss> {
    const { store, untilReported } = this.#options;
    const claims: Claim[] = (await store.gateways([])).gateways.flatMap(({ acknowledgement }) => acknowledgement ?? []);
    const loss = await this.#judge(snapshot, history, claims);
    if (!loss.isUnverified) return loss;
    // An acknowledgement names the newest change that a gateway knows. A gateway that rejects this store sends no
    // acknowledgement, but it reports inactive records. Only this report can show that the database lacks a change that
    // the gateway knows.
    await untilReported?.();
    for await (const { generation, revision } of store.reports()) claims.push({ generation, revision });
    return this.#judge(snapshot, history, claims);
  }

  async #judge(snapshot: StoreSnapshot, history: History, claims: readonly Claim[]): Promise<Loss> {
    const { store, longestLifetimeMilliseconds } = this.#options;
    const generations = new Set(
      [generationIn(snapshot.meta), this.#last?.generation, ...claims.map(({ generation }) => generation)].filter(
        (generation) => typeof generation === 'string',
      ),
    );
    const known = Math.max(
      ...[snapshot.revision, this.#last?.revision ?? 0, ...claims.map(({ revision }) => revision)],
    );
    const isBehind = known > history.revision || (await this.#knowsForeignHistory(snapshot, history, generations));
    const isUntouched = history.revision === 0 && snapshot.meta === null && snapshot.revision === 0;
    const isNew = isUntouched && history.isOpen && claims.length === 0;
    const isOwn = store.endsWithProcess && !isBehind;
    // If the meta record names servers, gateways need a grant, which is a permission to use cached records. A meta
    // record of an earlier release names no servers. Unknown gateways could then work without a grant, so the registry
    // waits until their cached records have expired.
    const hasGrants =
      snapshot.meta === null ||
      (snapshot.meta.generation === null ? snapshot.meta.filling !== undefined : snapshot.meta.servers !== undefined);
    const wasSettled = this.#last !== null && history.isOpen;
    const isWitnessed = (wasSettled || history.generation === this.#accountedIn) && !isBehind;
    // Gateways cache no records of a new store, or of a store in this process. So the registry need not wait until
    // cached records expire.
    if (isNew || isOwn) return { known, isBehind, isUnverified: false, isAccounted: true, waitMilliseconds: 0 };
    const isAccounted = isWitnessed && hasGrants;
    const hold = store.canFailOver ? holdMilliseconds : 0;
    // The database lacks no change if it has the newest change that the store has announced to gateways. This is true
    // even if the store is now on another Redis server. If the registry was interrupted after the announcement, that
    // change is still in the outbox, so `isNamedChange` looks there too.
    const isProven =
      history.published !== null &&
      (snapshot.change === history.published.change ||
        (await isNamedChange(this.#options.database, history, snapshot)));
    return {
      ...{ known, isBehind, isAccounted, waitMilliseconds: isAccounted ? hold : longestLifetimeMilliseconds },
      isUnverified: isBehind || !(isWitnessed || isProven || history.published === null),
    };
  }

  /**
   * Whether the store or a gateway knows a generation or a change that this database never had. If so, the database
   * lacks changes.
   */
  async #knowsForeignHistory(
    snapshot: StoreSnapshot,
    history: History,
    generations: ReadonlySet<string>,
  ): Promise<boolean> {
    const { database } = this.#options;
    for (const generation of generations) if (!(await hasGeneration(database, generation))) return true;
    if (snapshot.meta?.generation !== history.generation || snapshot.change === null || history.published === null)
      return false;
    if (snapshot.revision < history.published.revision) return false;
    return snapshot.change !== (await changeOf(database, history, snapshot.revision));
  }
}

/** Whether the newest change in the store is in the database. False if only a placeholder names the change. */
async function isNamedChange(
  database: RegistryDatabase,
  history: History,
  { revision, change }: StoreSnapshot,
): Promise<boolean> {
  if (change === null || change === unnamedChange) return false;
  return change === (await changeOf(database, history, revision));
}

/** Dependencies of OwnStore. */
interface OwnStoreOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  /** Called after each page of record names that `OwnStore` reads. If it returns false, `OwnStore` stops reading. */
  readonly mayGoOn: () => Promise<boolean>;
}

const howToReplace =
  'Check registry.database and keyStore.redis. To replace the content of Redis anyway, delete the record mg:meta there: gateways may respond with 503 until all records are written';

/**
 * Rejects the store of another registry before a rebuild begins. A rebuild deletes the store's records that the
 * database does not have. With a wrong or empty database, a rebuild would delete every key of every merchant.
 */
export class OwnStore {
  readonly #options: OwnStoreOptions;
  /**
   * The last error and the state of the store and database that caused it. While that state is unchanged, the same
   * error is thrown, so that a large store is not read again.
   */
  #refused: { readonly of: string; readonly error: Error } | null = null;

  constructor(options: OwnStoreOptions) {
    this.#options = options;
  }

  /**
   * Checks that the store belongs to this database. If the store names no database, the database must know the store's
   * generation, or at least half of the store's records.
   * @returns true if the store belongs to this database; false if the check was stopped
   * @throws Error if the store does not belong to this database
   */
  async require(meta: StoredMeta, history: History): Promise<boolean> {
    const { database, store, mayGoOn } = this.#options;
    const { generation } = meta;
    if (generation === history.generation) return true;
    if (meta.database !== undefined) {
      if (meta.database === (await databaseName(database))) return true;
      throw new Error(`Redis has the records of another database (${meta.database}). ${howToReplace}`);
    }
    if (generation !== null && (await hasGeneration(database, generation))) return true;
    const of = JSON.stringify([generation, history]);
    if (this.#refused?.of === of) throw this.#refused.error;
    let [unknown, known] = [0, 0];
    for await (const page of unknownStoreNames(database, store)) {
      unknown += page.unknown.length;
      known += page.length - page.unknown.length;
      if (!(await mayGoOn())) return false;
    }
    if (unknown <= known) return true;
    const error = new Error(
      `Redis has the records of another registry: of ${unknown + known} records there, this database has ${known}. ${howToReplace}`,
    );
    this.#refused = { of, error };
    throw error;
  }
}
