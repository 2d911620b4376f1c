import type { RecordsStore, StoreLook } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { changeOf, hasHad, statedGeneration } from './history.js';
import type { History } from './history.js';

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
