import type { RecordsStore, StoredMeta, StoreLook } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { changeOf, databaseName, hasHad, type History, statedGeneration } from './history.js';
import { strangeNames } from './pages.js';

/** What a judgement needs. */
export interface ContinuityOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly longestLifetimeMilliseconds: number;
  /** Resolves when gateways that can reach the store have reported what they remember; at once where it is not given. */
  readonly untilReported?: () => Promise<void>;
}

/** What somebody knows of the history: an acknowledgement or a report of a gateway. */
interface Claim {
  readonly generation?: string | undefined;
  readonly revision: number;
}

/** What a store that is not as it was left means. */
export interface Loss {
  /** The highest revision that anybody knows. */
  readonly known: number;
  /** Whether the database lacks changes that somebody knows of: it was restored from a backup. */
  readonly isBehind: boolean;
  /** Whether nobody can say that the database lacks nothing. */
  readonly isDoubtful: boolean;
  /** Whether every gateway that may use a record is known. */
  readonly isAccounted: boolean;
  /** How long nothing is in force after everything was written: a gateway may use records without being in the roster. */
  readonly waitMilliseconds: number;
}

/** A server that was replaced may be answered by for so long, and its gateways know no more. */
const holdMilliseconds = 2_000;

/** Judges whether a store is what the database says that it was left as, and what was lost where it is not. */
export class Continuity {
  readonly #options: ContinuityOptions;
  /** What this process was last sure of. */
  #last: History | null = null;
  /** The generation that this process has begun, and not completed, after a loss that it could account for. */
  #accountedIn: string | null = null;

  constructor(options: ContinuityOptions) {
    this.#options = options;
  }

  /** Takes in that store and database were found to say the same. */
  settled(history: History): void {
    this.#last = history;
    this.#accountedIn = null;
  }

  /** Takes in that a generation was begun. Until it is complete nobody can be enrolled in it: if it fails, nobody is forgotten. */
  begun(generation: string, { isAccounted }: Loss): void {
    this.#accountedIn = isAccounted ? generation : null;
  }

  /**
   * Whether the store is what this database says that it was left as.
   * @param isForged somebody else has written the meta record, which then says nothing
   */
  async holds(look: StoreLook, history: History, isForged = false): Promise<boolean> {
    const { meta, servers, revision, change, isWhole } = look;
    if (!isWhole || history.published === null || history.servers?.join() !== servers.join()) return false;
    const isOwn = meta?.generation === history.generation && meta.servers?.join() === servers.join();
    if (!isOwn && !isForged) return false;
    if (revision < history.published.revision || revision > history.revision) return false;
    return change !== null && change === (await changeOf(this.#options.database, history, revision));
  }

  /** Judges a store that is not what the database says that it was left as. */
  async assess(look: StoreLook, history: History): Promise<Loss> {
    const { store, untilReported } = this.#options;
    const claims: Claim[] = (await store.gateways([])).gateways.flatMap(({ acknowledgement }) => acknowledgement ?? []);
    const loss = await this.#judge(look, history, claims);
    if (!loss.isDoubtful) return loss;
    // Gateways that do not believe the store acknowledge nothing in it, but they report what they remember.
    await untilReported?.();
    for await (const { generation, revision } of store.reports()) claims.push({ generation, revision });
    return this.#judge(look, history, claims);
  }

  async #judge(look: StoreLook, history: History, claims: readonly Claim[]): Promise<Loss> {
    const { store, longestLifetimeMilliseconds } = this.#options;
    const generations = new Set(
      [statedGeneration(look.meta), this.#last?.generation, ...claims.map(({ generation }) => generation)].filter(
        (generation) => typeof generation === 'string',
      ),
    );
    const known = Math.max(...[look.revision, this.#last?.revision ?? 0, ...claims.map(({ revision }) => revision)]);
    const isBehind = known > history.revision || (await this.#isStrange(look, history, generations));
    // Nobody can have read what was never there; nor what ends with this process.
    const isUntouched = history.revision === 0 && look.meta === null && look.revision === 0;
    const isNew = isUntouched && history.isOpen && claims.length === 0;
    const isOwn = store.endsWithProcess && !isBehind;
    // An earlier release of the registry names no servers, and its gateways need no grant.
    const hasGrants =
      look.meta === null ||
      (look.meta.generation === null ? look.meta.filling !== undefined : look.meta.servers !== undefined);
    const wasSettled = this.#last !== null && history.isOpen;
    const isWitnessed = (wasSettled || history.generation === this.#accountedIn) && !isBehind;
    if (isNew || isOwn) return { known, isBehind, isDoubtful: false, isAccounted: true, waitMilliseconds: 0 };
    const isAccounted = isWitnessed && hasGrants;
    const hold = store.canFailOver ? holdMilliseconds : 0;
    // A store that is as this database left it, but for the server, shows that the database lacks nothing.
    const isProven = history.published !== null && look.change === history.published.change;
    return {
      ...{ known, isBehind, isAccounted, waitMilliseconds: isAccounted ? hold : longestLifetimeMilliseconds },
      isDoubtful: isBehind || !(isWitnessed || isProven || history.published === null),
    };
  }

  /** Whether somebody knows a history, or a change, that this database never had. */
  async #isStrange(look: StoreLook, history: History, generations: ReadonlySet<string>): Promise<boolean> {
    const { database } = this.#options;
    for (const generation of generations) if (!(await hasHad(database, generation))) return true;
    if (look.meta?.generation !== history.generation || look.change === null || history.published === null)
      return false;
    if (look.revision < history.published.revision) return false;
    return look.change !== (await changeOf(database, history, look.revision));
  }
}

/** What a look at a store needs. */
interface OwnStoreOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  /** Asked between two pages; false ends the look. */
  readonly mayGoOn: () => Promise<boolean>;
}

const howToReplace =
  'Is it the right database, and the right Redis? To replace what is there all the same, delete its record mg:meta: ' +
  'gateways may answer 503 until all is written';

/**
 * Refuses a store that is another registry's. What the database does not know is removed when everything is written anew, and on a
 * wrong or empty database that would be every key of every merchant.
 */
export class OwnStore {
  readonly #options: OwnStoreOptions;
  /** Of what was refused: all that would make the answer another one, so that a large store is not read again and again. */
  #refused: { readonly of: string; readonly error: Error } | null = null;

  constructor(options: OwnStoreOptions) {
    this.#options = options;
  }

  /**
   * Says whether to go on; false where the look was ended.
   * @throws Error where the store names another database; or where it names none, has a history that this database never had, and
   * most of what it holds is strange to it
   */
  async require(meta: StoredMeta, history: History): Promise<boolean> {
    const { database, store, mayGoOn } = this.#options;
    const { generation } = meta;
    if (generation === history.generation) return true;
    if (meta.database !== undefined) {
      if (meta.database === (await databaseName(database))) return true;
      throw new Error(`the store is that of another database (${meta.database}). ${howToReplace}`);
    }
    if (generation !== null && (await hasHad(database, generation))) return true;
    const of = JSON.stringify([generation, history]);
    if (this.#refused?.of === of) throw this.#refused.error;
    let [strange, known] = [0, 0];
    for await (const page of strangeNames(database, store)) {
      strange += page.unknown.length;
      known += page.length - page.unknown.length;
      if (!(await mayGoOn())) return false;
    }
    if (strange <= known) return true;
    const error = new Error(
      `the store is another registry's: of its ${strange + known} records this database knows ${known}. ${howToReplace}`,
    );
    this.#refused = { of, error };
    throw error;
  }
}
