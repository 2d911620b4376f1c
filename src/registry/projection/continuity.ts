import type { RecordsStore, StoredMeta, StoreSnapshot } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { changeOf, databaseName, hasGeneration, type History, generationIn } from './history.js';
import { unknownStoreNames } from './pages.js';

/** Dependencies of Continuity. */
export interface ContinuityOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly longestLifetimeMilliseconds: number;
  /**
   * Resolves when the gateways that reach the store have had time to report the inactive records that they know.
   * Default: at once.
   */
  readonly untilReported?: () => Promise<void>;
}

/**
 * The generation and revision in a gateway's message. They show that this change was made, even if the database lacks
 * it.
 */
interface Claim {
  readonly generation?: string | undefined;
  readonly revision: number;
}

/** What may have been lost when the store differs from the state that the database has recorded. */
export interface Loss {
  /** The highest revision that the store, a gateway or this process knows. */
  readonly known: number;
  /** Whether the database lacks changes that another source has, because it was restored from a backup. */
  readonly isBehind: boolean;
  /** Whether the database may lack changes. */
  readonly isUnverified: boolean;
  /** Whether the roster contains every gateway that may use a record. */
  readonly isAccounted: boolean;
  /**
   * How long after the rebuild no change counts as in force, because a gateway outside the roster may use old records.
   */
  readonly waitMilliseconds: number;
}

/** How long a replaced Redis server may still serve gateways that do not know of the failover, in milliseconds. */
const holdMilliseconds = 2_000;

/** Compares the store with the state that the database has recorded for it, and finds out what was lost. */
export class Continuity {
  readonly #options: ContinuityOptions;
  /** The state of the database when this process last found store and database consistent. */
  #last: History | null = null;
  /** The generation whose rebuild this process began and did not complete, if every gateway was known at its start. */
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
   * Remembers the start of a generation. Gateways cannot join the roster before it is complete, so after a failed
   * rebuild all of them are still known.
   */
  begun(generation: string, { isAccounted }: Loss): void {
    this.#accountedIn = isAccounted ? generation : null;
  }

  /**
   * Whether the store is in the state that this database has recorded for it.
   * @param isForged whether another client wrote the meta record (the store's description), which is then ignored
   */
  async holds(snapshot: StoreSnapshot, history: History, isForged = false): Promise<boolean> {
    const { meta, servers, revision, change, isWhole } = snapshot;
    if (!isWhole || history.published === null || history.servers?.join() !== servers.join()) return false;
    const isOwn = meta?.generation === history.generation && meta.servers?.join() === servers.join();
    if (!isOwn && !isForged) return false;
    if (revision < history.published.revision || revision > history.revision) return false;
    return change !== null && change === (await changeOf(this.#options.database, history, revision));
  }

  /** Finds out what was lost, if a store is not in its recorded state. */
  async assess(snapshot: StoreSnapshot, history: History): Promise<Loss> {
    const { store, untilReported } = this.#options;
    const claims: Claim[] = (await store.gateways([])).gateways.flatMap(({ acknowledgement }) => acknowledgement ?? []);
    const loss = await this.#judge(snapshot, history, claims);
    if (!loss.isUnverified) return loss;
    // Gateways that reject the store acknowledge nothing in it. Instead they report the inactive records that they
    // know.
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
    // No gateway has cached records of a store that was never written, or of a store in this process's memory.
    const isUntouched = history.revision === 0 && snapshot.meta === null && snapshot.revision === 0;
    const isNew = isUntouched && history.isOpen && claims.length === 0;
    const isOwn = store.endsWithProcess && !isBehind;
    // Gateways need grants to use cached records only if the meta record names servers. Earlier releases name none.
    const hasGrants =
      snapshot.meta === null ||
      (snapshot.meta.generation === null ? snapshot.meta.filling !== undefined : snapshot.meta.servers !== undefined);
    const wasSettled = this.#last !== null && history.isOpen;
    const isWitnessed = (wasSettled || history.generation === this.#accountedIn) && !isBehind;
    if (isNew || isOwn) return { known, isBehind, isUnverified: false, isAccounted: true, waitMilliseconds: 0 };
    const isAccounted = isWitnessed && hasGrants;
    const hold = store.canFailOver ? holdMilliseconds : 0;
    // A store with the newest published change shows that the database lacks no change, even if its server has changed.
    const isProven = history.published !== null && snapshot.change === history.published.change;
    return {
      ...{ known, isBehind, isAccounted, waitMilliseconds: isAccounted ? hold : longestLifetimeMilliseconds },
      isUnverified: isBehind || !(isWitnessed || isProven || history.published === null),
    };
  }

  /** Whether the store or a gateway knows a generation or a change that this database never had. */
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

/** Dependencies of OwnStore. */
interface OwnStoreOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  /** Called between two pages; if it returns false, the check stops. */
  readonly mayGoOn: () => Promise<boolean>;
}

const howToReplace =
  'Check registry.database and keyStore.redis. To replace the content of Redis anyway, delete the record mg:meta there: gateways may respond with 503 until all records are written';

/**
 * Rejects the store of another registry. A rebuild deletes records that the database does not have: on a wrong or empty
 * database, that would be every key of every merchant.
 */
export class OwnStore {
  readonly #options: OwnStoreOptions;
  /** The last error and the state that caused it. Avoids reading a large store again before that state changes. */
  #refused: { readonly of: string; readonly error: Error } | null = null;

  constructor(options: OwnStoreOptions) {
    this.#options = options;
  }

  /**
   * Checks that the store belongs to this database.
   * @returns true if it does; false if the check was stopped
   * @throws Error if the store names another database. Without a name, if its generation is unknown and the database
   * does not have most of its records
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
