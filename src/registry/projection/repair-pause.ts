import type { RecordDifference, Logger, RecordsStore, StoreMemory } from '../../gateway/store-ports.js';

/** Options of the pause. */
export interface RepairPauseOptions {
  readonly eviction: Pick<EvictionGuard, 'check' | 'memory'>;
  readonly monotonic: () => number;
  readonly logger?: Logger | undefined;
  /** Called at the end of a pause: the sweep has to find the skipped records again. */
  readonly onEnded: () => void;
}

/** Warning for the operator while repair is paused. */
export const repairPausedWarning =
  'Redis is full and evicts records that the registry writes back: repair of missing records is paused; ' +
  'raise maxmemory, then set maxmemory-policy noeviction';

/** The longest gap between two batches in a row: those of a loop follow within a second. */
const mostBetweenBatchesMilliseconds = 10_000;
const firstPauseMilliseconds = 10_000;
const longestPauseMilliseconds = 60_000;
const triedRecords = 10;

/**
 * Pauses the repair of missing records while each repair makes Redis evict others. A full Redis with `allkeys-*` evicts
 * as much as is written to it, so repair would cause itself without end. A pause begins after two batches in a row with
 * evictions: those of one batch may have a cause that is over. Evictions are counted from batch to batch, because
 * reading records takes Redis memory too.
 */
export class RepairPause {
  readonly #options: RepairPauseOptions;
  #evictingBatches = 0;
  #countedKeys = 0;
  #countedAt = -Infinity;
  /** Time of the next trial, by the monotonic clock; null without a pause. */
  #until: number | null = null;
  #length = 0;
  #endedAt = -Infinity;
  /** The Redis memory settings at the last eviction. */
  #settings = '';
  /** Some of the records that were not repaired. */
  readonly #skipped = new Set<string>();

  constructor(options: RepairPauseOptions) {
    this.#options = options;
  }

  /** Whether missing records are skipped for now. */
  get isPaused(): boolean {
    return this.#until !== null;
  }

  /** Whether a trial is due: after the pause, and at once when Redis' memory settings have changed. */
  get isTrialDue(): boolean {
    if (this.#until === null) return false;
    return this.#options.monotonic() >= this.#until || this.#currentSettings !== this.#settings;
  }

  /** Begins a trial. @returns names of records that may still be missing */
  async tryAgain(): Promise<readonly string[]> {
    await this.#options.eviction.check();
    this.#countedAt = -Infinity;
    return [...this.#skipped];
  }

  /** The differences to repair now: during a pause all but missing records. */
  withoutPaused(differences: readonly RecordDifference[]): readonly RecordDifference[] {
    if (!this.isPaused) return differences;
    for (const { name } of differences.filter(isMissing))
      if (this.#skipped.size < triedRecords) this.#skipped.add(name);
    return differences.filter((one) => !isMissing(one));
  }

  /** Counts a finished batch of repairs. */
  async repaired(differences: readonly RecordDifference[]): Promise<void> {
    if (!differences.some(isMissing)) return;
    const hasEvicted = await this.#countEvictions();
    if (this.isPaused) {
      // These are present again; others are missing.
      this.#skipped.clear();
      if (hasEvicted) this.prolong();
      else this.end();
      return;
    }
    this.#evictingBatches = hasEvicted ? this.#evictingBatches + 1 : 0;
    if (this.#evictingBatches >= 2) this.#begin();
  }

  /** Doubles the pause. */
  prolong(): void {
    this.#pauseFor(this.#length * 2);
  }

  /** Ends the pause. */
  end(): void {
    const { logger, monotonic, onEnded } = this.#options;
    [this.#until, this.#endedAt, this.#evictingBatches] = [null, monotonic(), 0];
    this.#skipped.clear();
    logger?.info({}, 'repair of missing records resumed');
    onEnded();
  }

  #begin(): void {
    const { eviction, logger, monotonic } = this.#options;
    // Soon after the last pause: Redis had room for the records of the trial, but not for all.
    const isAgain = monotonic() - this.#endedAt < longestPauseMilliseconds;
    this.#pauseFor(isAgain ? this.#length * 2 : firstPauseMilliseconds);
    logger?.warn({ ...eviction.memory }, repairPausedWarning);
  }

  #pauseFor(milliseconds: number): void {
    this.#length = Math.min(milliseconds, longestPauseMilliseconds);
    this.#until = this.#options.monotonic() + this.#length;
    this.#settings = this.#currentSettings;
  }

  /** @returns whether Redis evicted keys during this batch, or since the batch before it */
  async #countEvictions(): Promise<boolean> {
    const { eviction, monotonic } = this.#options;
    const isNext = monotonic() - this.#countedAt < mostBetweenBatchesMilliseconds;
    if (!isNext) this.#evictingBatches = 0;
    const before = isNext ? this.#countedKeys : (eviction.memory?.evictedKeys ?? 0);
    await eviction.check();
    const { policies = [], evictedKeys = 0 } = eviction.memory ?? {};
    [this.#countedKeys, this.#countedAt] = [evictedKeys, monotonic()];
    return policies.some(evictsRecords) && evictedKeys > before;
  }

  get #currentSettings(): string {
    const { policies = [], maxMemory = 0 } = this.#options.eviction.memory ?? {};
    return [...policies, maxMemory].join();
  }
}

function isMissing({ isStored }: RecordDifference): boolean {
  return !isStored;
}

const remedy = 'set maxmemory-policy noeviction, and maxmemory to more than all records need';

/**
 * Knows Redis' memory policy. An evicted record looks like one that never existed, so a starting registry writes
 * nothing to a Redis that may evict records. A registry that already writes continues: a revocation matters more than a
 * possible eviction.
 */
export class EvictionGuard {
  readonly #store: Pick<RecordsStore, 'memory'>;
  #memory: StoreMemory | null = null;
  #hasWritten = false;

  constructor(store: Pick<RecordsStore, 'memory'>) {
    this.#store = store;
  }

  /** Redis' memory as last read; null for a store without eviction, or before the first contact. */
  get memory(): StoreMemory | null {
    return this.#memory;
  }

  /**
   * Number of keys that Redis has evicted since its start; null for a store without eviction, or before the first
   * contact.
   */
  get evictedKeys(): number | null {
    return this.#memory?.evictedKeys ?? null;
  }

  /** Warnings for the operator. */
  get warnings(): readonly string[] {
    const policies = this.#memory?.policies ?? [];
    const ofAll = policies.find(evictsRecords);
    if (ofAll !== undefined) return [`Redis may evict records (maxmemory-policy ${ofAll}): ${remedy}`];
    const ofSome = policies.find((policy) => policy.startsWith('volatile-'));
    if (ofSome === undefined) return [];
    return [`Redis may evict acknowledgements and reports of gateways (maxmemory-policy ${ofSome}): ${remedy}`];
  }

  /**
   * Reads Redis' memory policy.
   * @throws Error if it may evict records, and this process has not written any yet
   */
  async check(): Promise<void> {
    this.#memory = await this.#store.memory();
    if (!this.#hasWritten && this.#memory?.policies.some(evictsRecords) === true) throw new Error(this.warnings[0]);
  }

  /** Notes that this process has begun to write to the store. */
  written(): void {
    this.#hasWritten = true;
  }
}

/** Whether a `maxmemory-policy` lets Redis evict keys without an expiry. */
function evictsRecords(policy: string): boolean {
  return policy.startsWith('allkeys-');
}
