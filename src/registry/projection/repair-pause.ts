import type { Difference, Logger, RecordsStore, StoreMemory } from '../../gateway/store-ports.js';

/** What a pause of repair is decided by. */
export interface RepairPauseOptions {
  readonly eviction: Pick<EvictionGuard, 'look' | 'memory'>;
  readonly monotonic: () => number;
  readonly logger?: Logger | undefined;
  /** Called when a pause has ended: records that were left missing have to be found again. */
  readonly onEnded: () => void;
}

/** What an operator has to do while repair is paused. */
export const repairPausedWarning =
  'Redis is full and evicts records that the registry writes back: repair of missing records is paused; ' +
  'raise maxmemory, then set maxmemory-policy noeviction';

/** Batches of a loop follow each other within a second. */
const mostBetweenBatchesMilliseconds = 10_000;
const firstPauseMilliseconds = 10_000;
const longestPauseMilliseconds = 60_000;
const triedRecords = 10;

/**
 * Pauses the repair of missing records while Redis evicts others for them. A full Redis with `allkeys-*` evicts as much as is written to it,
 * so each repair would cause the next one, without end. Evictions in two batches in a row begin a pause: those before one batch alone may
 * have had a cause that is over. They are counted from batch to batch, because reading records takes memory of Redis too.
 */
export class RepairPause {
  readonly #options: RepairPauseOptions;
  #evictingBatches = 0;
  #countedKeys = 0;
  #countedAt = -Infinity;
  /** When missing records are next tried, on the monotonic clock; null while there is no pause. */
  #until: number | null = null;
  #length = 0;
  #endedAt = -Infinity;
  /** The settings with which Redis evicted. */
  #settings = '';
  /** Some of the records that were left missing. */
  readonly #left = new Set<string>();

  constructor(options: RepairPauseOptions) {
    this.#options = options;
  }

  /** Whether missing records stay missing for now. */
  get isPaused(): boolean {
    return this.#until !== null;
  }

  /** Whether it is time to write some missing records: after a while, and at once when Redis was given other settings. */
  get isTrialDue(): boolean {
    if (this.#until === null) return false;
    return this.#options.monotonic() >= this.#until || this.#currentSettings !== this.#settings;
  }

  /** Begins a trial. @returns names of records that may still be missing */
  async tryAgain(): Promise<readonly string[]> {
    await this.#options.eviction.look();
    this.#countedAt = -Infinity;
    return [...this.#left];
  }

  /** Those that are repaired now: during a pause none that is missing. */
  withoutPaused(differences: readonly Difference[]): readonly Difference[] {
    if (!this.isPaused) return differences;
    for (const { name } of differences.filter(isMissing)) if (this.#left.size < triedRecords) this.#left.add(name);
    return differences.filter((one) => !isMissing(one));
  }

  /** Takes in that these were repaired. */
  async repaired(differences: readonly Difference[]): Promise<void> {
    if (!differences.some(isMissing)) return;
    const hasEvicted = await this.#countEvictions();
    if (this.isPaused) {
      // They are not missing any more; others are.
      this.#left.clear();
      if (hasEvicted) this.prolong();
      else this.end();
      return;
    }
    this.#evictingBatches = hasEvicted ? this.#evictingBatches + 1 : 0;
    if (this.#evictingBatches >= 2) this.#begin();
  }

  /** Pauses for longer than before. */
  prolong(): void {
    this.#pauseFor(this.#length * 2);
  }

  /** Lets missing records be repaired again. */
  end(): void {
    const { logger, monotonic, onEnded } = this.#options;
    [this.#until, this.#endedAt, this.#evictingBatches] = [null, monotonic(), 0];
    this.#left.clear();
    logger?.info({}, 'missing records are repaired again');
    onEnded();
  }

  #begin(): void {
    const { eviction, logger, monotonic } = this.#options;
    // Soon after the last pause: there was room for the records of a trial, and not for all.
    const isAgain = monotonic() - this.#endedAt < longestPauseMilliseconds;
    this.#pauseFor(isAgain ? this.#length * 2 : firstPauseMilliseconds);
    logger?.warn({ ...eviction.memory }, repairPausedWarning);
  }

  #pauseFor(milliseconds: number): void {
    this.#length = Math.min(milliseconds, longestPauseMilliseconds);
    this.#until = this.#options.monotonic() + this.#length;
    this.#settings = this.#currentSettings;
  }

  /** @returns whether Redis has evicted something for the batch that ended now, or since the one before it */
  async #countEvictions(): Promise<boolean> {
    const { eviction, monotonic } = this.#options;
    const isNext = monotonic() - this.#countedAt < mostBetweenBatchesMilliseconds;
    if (!isNext) this.#evictingBatches = 0;
    const before = isNext ? this.#countedKeys : (eviction.memory?.evictedKeys ?? 0);
    await eviction.look();
    const { policies = [], evictedKeys = 0 } = eviction.memory ?? {};
    [this.#countedKeys, this.#countedAt] = [evictedKeys, monotonic()];
    return policies.some(evictsRecords) && evictedKeys > before;
  }

  get #currentSettings(): string {
    const { policies = [], maxMemory = 0 } = this.#options.eviction.memory ?? {};
    return [...policies, maxMemory].join();
  }
}

function isMissing({ isStored }: Difference): boolean {
  return !isStored;
}

const remedy = 'set maxmemory-policy noeviction, and maxmemory to more than all records need';

/**
 * Knows what Redis evicts. A record that was evicted cannot be told from one that never was, so a registry that starts writes nothing
 * to a Redis that may evict records. One that writes already goes on: a revocation matters more than what may be evicted.
 */
export class EvictionGuard {
  readonly #store: Pick<RecordsStore, 'memory'>;
  #memory: StoreMemory | null = null;
  #hasWritten = false;

  constructor(store: Pick<RecordsStore, 'memory'>) {
    this.#store = store;
  }

  /** What Redis last said of its memory; null for a store that evicts nothing, or was not reached. */
  get memory(): StoreMemory | null {
    return this.#memory;
  }

  /** How many records, or others, Redis has evicted since it started; null for a store that evicts none, or was not reached. */
  get evictedKeys(): number | null {
    return this.#memory?.evictedKeys ?? null;
  }

  /** What an operator has to see to. */
  get warnings(): readonly string[] {
    const policies = this.#memory?.policies ?? [];
    const ofAll = policies.find(evictsRecords);
    if (ofAll !== undefined) return [`Redis may evict records (maxmemory-policy ${ofAll}): ${remedy}`];
    const ofSome = policies.find((policy) => policy.startsWith('volatile-'));
    if (ofSome === undefined) return [];
    return [`Redis may evict acknowledgements and reports of gateways (maxmemory-policy ${ofSome}): ${remedy}`];
  }

  /**
   * Looks at what Redis does when it is full.
   * @throws Error where it may evict records, and this process has written none yet
   */
  async look(): Promise<void> {
    this.#memory = await this.#store.memory();
    if (!this.#hasWritten && this.#memory?.policies.some(evictsRecords) === true) throw new Error(this.warnings[0]);
  }

  /** Takes in that this process writes to the store. */
  written(): void {
    this.#hasWritten = true;
  }
}

/** Whether a `maxmemory-policy` lets Redis evict what has no lifetime. */
function evictsRecords(policy: string): boolean {
  return policy.startsWith('allkeys-');
}
