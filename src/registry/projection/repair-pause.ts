import type { RecordDifference, Logger, RecordsStore, StoreMemory } from '../../gateway/store-ports.js';

/** Dependencies of RepairPause. */
export interface RepairPauseOptions {
  readonly eviction: Pick<EvictionGuard, 'check' | 'memory'>;
  readonly monotonic: () => number;
  readonly logger?: Logger | undefined;
  /**
   * Called at the end of a pause. `RecordRepairs` then scans all records again, and repairs the records that were
   * skipped during the pause.
   */
  readonly onEnded: () => void;
}

/** Warning for the operator while repairs are paused. */
export const repairPausedWarning =
  'Redis is full and evicts records that the registry writes back: repair of missing records is paused; ' +
  'raise maxmemory, then set maxmemory-policy noeviction';

/**
 * Two batches of repairs count as consecutive if less than this time passes between them. If a repair causes evictions,
 * the next batch, which repairs the evicted records, follows within a second.
 */
const mostBetweenBatchesMilliseconds = 10_000;
const firstPauseMilliseconds = 10_000;
const longestPauseMilliseconds = 60_000;
const triedRecords = 10;

/**
 * A full Redis with an `allkeys-*` policy evicts as much as is written, so repairs would cause evictions and further
 * repairs endlessly. This class pauses repairs of missing records after two consecutive batches with evictions. A
 * trial, the repair of a few records, then tests whether to end the pause. Evictions between two consecutive batches
 * count too, because reads use memory too and can evict records.
 */
export class RepairPause {
  readonly #options: RepairPauseOptions;
  #evictingBatches = 0;
  #countedKeys = 0;
  #countedAt = -Infinity;
  /** Time of the next trial repair on the monotonic clock; null if repairs are not paused. */
  #until: number | null = null;
  #length = 0;
  #endedAt = -Infinity;
  /** The memory settings of Redis when the pause began or was extended. If they change, a repair is tried at once. */
  #settings = '';
  /** Names of some missing records that were not repaired during the pause. The next trial repairs them. */
  readonly #skipped = new Set<string>();

  constructor(options: RepairPauseOptions) {
    this.#options = options;
  }

  /** Whether repairs skip missing records for now. Changed records are repaired even during a pause. */
  get isPaused(): boolean {
    return this.#until !== null;
  }

  /**
   * Whether a trial repair is due: the time of the pause has passed, or Redis' memory settings have changed. False if
   * repairs are not paused.
   */
  get isTrialDue(): boolean {
    if (this.#until === null) return false;
    return this.#options.monotonic() >= this.#until || this.#currentSettings !== this.#settings;
  }

  /** Call this before a trial repair. @returns the names of the missing records to repair */
  async tryAgain(): Promise<readonly string[]> {
    await this.#options.eviction.check();
    this.#countedAt = -Infinity;
    return [...this.#skipped];
  }

  /** Returns the differences to repair now: during a pause only those of existing records, otherwise all of them. */
  withoutPaused(differences: readonly RecordDifference[]): readonly RecordDifference[] {
    if (!this.isPaused) return differences;
    for (const { name } of differences.filter(isMissing))
      if (this.#skipped.size < triedRecords) this.#skipped.add(name);
    return differences.filter((one) => !isMissing(one));
  }

  /** Checks for evictions after a batch of repairs. Begins, extends or ends the pause. */
  async repaired(differences: readonly RecordDifference[]): Promise<void> {
    if (!differences.some(isMissing)) return;
    const hasEvicted = await this.#countEvictions();
    if (this.isPaused) {
      // The skipped records were just repaired, so they are no longer missing.
      this.#skipped.clear();
      if (hasEvicted) this.prolong();
      else this.end();
      return;
    }
    this.#evictingBatches = hasEvicted ? this.#evictingBatches + 1 : 0;
    if (this.#evictingBatches >= 2) this.#begin();
  }

  /** Doubles the pause, up to one minute. */
  prolong(): void {
    this.#pauseFor(this.#length * 2);
  }

  end(): void {
    const { logger, monotonic, onEnded } = this.#options;
    [this.#until, this.#endedAt, this.#evictingBatches] = [null, monotonic(), 0];
    this.#skipped.clear();
    logger?.info({}, 'repair of missing records resumed');
    onEnded();
  }

  #begin(): void {
    const { eviction, logger, monotonic } = this.#options;
    // A pause soon after the last pause is longer: Redis had memory for the few records of the trial, but not for all.
    const isAgain = monotonic() - this.#endedAt < longestPauseMilliseconds;
    this.#pauseFor(isAgain ? this.#length * 2 : firstPauseMilliseconds);
    logger?.warn({ ...eviction.memory }, repairPausedWarning);
  }

  #pauseFor(milliseconds: number): void {
    this.#length = Math.min(milliseconds, longestPauseMilliseconds);
    this.#until = this.#options.monotonic() + this.#length;
    this.#settings = this.#currentSettings;
  }

  /**
   * @returns whether Redis evicted keys during this batch of repairs, or since the previous batch if the batches are
   * consecutive
   */
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
 * Checks the memory policy of Redis. An evicted record seems never to have existed, so a registry does not begin to
 * write to a Redis that can evict records. A registry that already writes continues, because it has to write
 * revocations.
 */
export class EvictionGuard {
  readonly #store: Pick<RecordsStore, 'memory'>;
  #memory: StoreMemory | null = null;
  #hasWritten = false;

  constructor(store: Pick<RecordsStore, 'memory'>) {
    this.#store = store;
  }

  /**
   * Redis' memory limits and evictions at the last check; null before the first check, or for a store without eviction.
   */
  get memory(): StoreMemory | null {
    return this.#memory;
  }

  /**
   * Number of keys that Redis has evicted since its start; null before the first check, or for a store without
   * eviction.
   */
  get evictedKeys(): number | null {
    return this.#memory?.evictedKeys ?? null;
  }

  /** Warnings for the operator about memory policies with which Redis can evict keys. */
  get warnings(): readonly string[] {
    const policies = this.#memory?.policies ?? [];
    const ofAll = policies.find(evictsRecords);
    if (ofAll !== undefined) return [`Redis may evict records (maxmemory-policy ${ofAll}): ${remedy}`];
    const ofSome = policies.find((policy) => policy.startsWith('volatile-'));
    if (ofSome === undefined) return [];
    return [`Redis may evict acknowledgements and reports of gateways (maxmemory-policy ${ofSome}): ${remedy}`];
  }

  /**
   * Reads the memory limits and evictions of Redis.
   * @throws Error if Redis can evict records, unless this process has already written to the store
   */
  async check(): Promise<void> {
    this.#memory = await this.#store.memory();
    if (!this.#hasWritten && this.#memory?.policies.some(evictsRecords) === true) throw new Error(this.warnings[0]);
  }

  /** Call this when this process begins to write to the store. */
  written(): void {
    this.#hasWritten = true;
  }
}

/** Whether a `maxmemory-policy` lets Redis evict keys without an expiry. */
function evictsRecords(policy: string): boolean {
  return policy.startsWith('allkeys-');
}
