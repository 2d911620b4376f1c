/** How long refused attempts are counted before the counts are stored, in milliseconds. */
const windowMilliseconds = 60_000;

/** Refused attempts within one minute that have the same key, such as the client's address. */
export interface CountedRefusals<First> {
  /** Details of the first attempt, such as its author. The stored event contains them. */
  readonly first: First;
  /** The time of the first attempt, in milliseconds since 1970. */
  readonly since: number;
  /** The number of attempts by failure code. */
  readonly counts: ReadonlyMap<string, number>;
}

/** Dependencies of `RefusalCounts`. */
export interface RefusalCountsOptions<First> {
  readonly clock: { now(): number };
  readonly timers: { after(milliseconds: number, act: () => void): () => void };
  /** Maximum number of different keys (such as client addresses) that are counted within a minute. */
  readonly mostKeys: number;
  /** Stores the attempts that were counted within a minute. Never rejects. */
  readonly store: (all: readonly CountedRefusals<First>[]) => Promise<void>;
  /** Called for an attempt that is not counted: `mostKeys` other keys are counted already, or `stop` was called. */
  readonly omit: () => void;
}

/**
 * Counts refused attempts, so that all attempts with the same key cause only one stored event per minute. Otherwise an
 * attacker could fill the database.
 */
export class RefusalCounts<First> {
  readonly #options: RefusalCountsOptions<First>;
  #all = new Map<string, CountedRefusals<First> & { readonly counts: Map<string, number> }>();
  #cancelTimer: (() => void) | null = null;
  #storing: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: RefusalCountsOptions<First>) {
    this.#options = options;
  }

  /**
   * Counts an attempt.
   * @param key what the attempts of one event have in common, such as the client's address
   * @param code why the attempt was refused
   */
  add(key: string, code: string, first: First): void {
    const { clock, timers, mostKeys, omit } = this.#options;
    const known = this.#all.get(key);
    if (known === undefined && (this.#isStopped || this.#all.size >= mostKeys)) {
      omit();
      return;
    }
    const refusals = known ?? { first, since: clock.now(), counts: new Map<string, number>() };
    refusals.counts.set(code, (refusals.counts.get(code) ?? 0) + 1);
    this.#all.set(key, refusals);
    this.#cancelTimer ??= timers.after(windowMilliseconds, () => {
      this.#store();
    });
  }

  /** Stores the attempts counted in the current minute, and stops counting. Resolves when they are stored. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#store();
    await this.#storing;
  }

  #store(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    const all = [...this.#all.values()];
    this.#all = new Map();
    if (all.length > 0) this.#storing = this.#storing.then(() => this.#options.store(all));
  }
}

/**
 * Builds the part of a stored event that contains the counts: the causes, the number of attempts in total and by cause,
 * and the time of the first attempt.
 */
export function countedState({ since, counts }: Pick<CountedRefusals<unknown>, 'since' | 'counts'>) {
  return {
    cause: [...counts.keys()].toSorted().join(', '),
    refusals: [...counts.values()].reduce((sum, count) => sum + count, 0),
    ...{ causes: Object.fromEntries(counts), since: new Date(since).toISOString() },
  };
}
