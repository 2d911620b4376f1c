import { DatabaseError } from '../../database/database-error.js';
import type { Logger, Timers, WatchedRecords } from '../../gateway/store-ports.js';
import type { EvictionGuard } from './repair-pause.js';
import { Projection, type ProjectionOptions } from './projection.js';
import type { RepairCounts } from './record-repairs.js';

/** Dependencies of Projector. */
export interface ProjectorOptions extends Omit<ProjectionOptions, 'shouldStop' | 'onPublished'> {
  readonly timers: Timers;
}

/** Poll interval. A poll finds changes that other processes made, and a store that was emptied. */
const pollMilliseconds = 1000;
/**
 * Minimum interval between two repairs of the store. Without this interval, a Redis client that forges records in a
 * loop would occupy this process.
 */
const betweenRepairsMilliseconds = 20;
const firstPauseMilliseconds = 100;
const longestPauseMilliseconds = 10_000;
/**
 * Maximum retry pause after a database error. The pause is short, because no event shows when the database is available
 * again.
 */
const longestForDatabaseMilliseconds = 500;
/**
 * Maximum retry pause if the state of the store cannot be read. It is short, because a Redis Cluster sends no event
 * when its state can be read again. Frequent attempts do no harm, because reading changes nothing.
 */
const longestForSnapshotMilliseconds = pollMilliseconds;

/**
 * Writes changes of the database to the store, in passes. A pass is one run of the projection. It starts at once when
 * this process makes a change or receives a notification, otherwise at the poll interval. Failed passes are repeated
 * after increasing pauses.
 */
export class Projector {
  readonly #projection: Projection;
  readonly #session: ProjectorOptions['session'];
  readonly #timers: Timers;
  readonly #logger: Logger | undefined;
  #running: Promise<void> | null = null;
  #isWanted = false;
  #isStopped = false;
  #isAskHandled = false;
  #failures = 0;
  /**
   * Number of consecutive failures of the same kind. It determines the retry pause. A successful pass and `storeFound`
   * set it to 0.
   */
  #failuresInRow = 0;
  #longestPause = longestPauseMilliseconds;
  #cancelTimer: () => void = () => undefined;
  #next: { readonly pass: Promise<void>; readonly ended: () => void } | null = null;

  constructor({ timers, logger, ...options }: ProjectorOptions) {
    this.#projection = new Projection({
      ...{ ...options, logger },
      shouldStop: () => this.#isStopped,
      onPublished: () => {
        this.#notifyWaiting();
      },
    });
    this.#session = options.session;
    this.#timers = timers;
    this.#logger = logger;
    void this.#watch(options.store.watched);
    const { inbox } = options.store;
    const onWork = (): void => {
      this.#onAsk();
    };
    if (inbox !== null) inbox.onWork = onWork;
  }

  /** Starts a pass now, or after the pass that is running. */
  wake(): void {
    if (this.#isStopped) return;
    this.#isWanted = true;
    this.#running ??= this.#passes().finally(() => {
      this.#running = null;
      // `wake()` might have been called while the last pass ended. Without this check, the requested pass would start
      // only at the next poll.
      if (this.#shouldGoOn()) this.wake();
    });
  }

  /**
   * Call this after this process has made a change. Also notifies other processes, because another process could hold
   * the lease (the right to write to the store).
   */
  changed(): void {
    this.#session.notify();
    this.wake();
  }

  /** Call this when the store is reachable again. Starts a pass at once, without the rest of the retry pause. */
  storeFound(): void {
    this.#failuresInRow = 0;
    this.wake();
  }

  /**
   * Resolves when the next change is published (announced to gateways), or when the next pass ends. A failed pass
   * counts too.
   */
  nextPass(): Promise<void> {
    if (this.#next === null) {
      let ended = (): void => undefined;
      const pass = new Promise<void>((resolve) => (ended = resolve));
      this.#next = { pass, ended };
    }
    return this.#next.pass;
  }

  /** Whether the last pass failed. In this case, the content of the store is unknown. */
  get isFailing(): boolean {
    return this.#failures > 0;
  }

  /** Evictions and memory policy of Redis, with warnings for the operator. */
  get eviction(): Pick<EvictionGuard, 'evictedKeys' | 'warnings'> {
    return this.#projection.eviction;
  }

  /** Whether all changes up to this revision (number of a change) are written to the store. */
  hasProjected(revision: number): Promise<boolean> {
    return this.#projection.hasProjected(revision);
  }

  /** Counts of the records that were compared with the database and repaired. */
  get repairCounts(): RepairCounts {
    return this.#projection.repairCounts;
  }

  /**
   * The state of the projection. The roster (list of gateways) reads this state, because only the process that writes
   * to the store is allowed to change the roster.
   */
  get projection(): Pick<Projection, 'lease' | 'settledIn' | 'isComplete'> {
    return this.#projection;
  }

  /** Stops after the current batch and releases the lease (the right to write to the store). */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelTimer();
    await this.#running;
    try {
      await this.#projection.end();
    } catch (error) {
      this.#logger?.warn(
        { err: error },
        'the right to write records to the store could not be released; the right expires by itself',
      );
    }
  }

  /**
   * Starts a pass when a Redis client has changed a record, or when notifications of such changes were lost.
   * Does nothing after a failed pass, because the retry starts after its own pause.
   */
  async #watch(watched: WatchedRecords | null): Promise<void> {
    while (watched !== null && !this.#isStopped) {
      await watched.next();
      if (!this.isFailing) this.wake();
      await new Promise<void>((resolve) => void this.#timers.after(betweenRepairsMilliseconds, resolve));
    }
  }

  /**
   * Starts a pass when a gateway requests records. A later pass, after `betweenRepairsMilliseconds`, handles the
   * requests that arrive meanwhile. Does nothing after a failed pass, or while another process writes to the store.
   * Does nothing during a rebuild of the store either: the rebuild itself handles requests between two pages.
   */
  #onAsk(): void {
    if (this.isFailing || this.#isStopped || this.#isAskHandled || this.#projection.settledIn === null) return;
    this.#isAskHandled = true;
    this.wake();
    this.#timers.after(betweenRepairsMilliseconds, () => {
      this.#isAskHandled = false;
      this.wake();
    });
  }

  async #passes(): Promise<void> {
    this.#cancelTimer();
    do {
      this.#isWanted = false;
      await this.#pass();
      this.#notifyWaiting();
    } while (this.#shouldGoOn());
    if (!this.#isStopped)
      this.#cancelTimer = this.#timers.after(this.#pause(), () => {
        this.wake();
      });
  }

  #notifyWaiting(): void {
    this.#next?.ended();
    this.#next = null;
  }

  async #pass(): Promise<void> {
    try {
      await this.#projection.run();
      if (this.#failures > 0)
        this.#logger?.info({ failures: this.#failures }, 'records can be written to the store again');
      this.#failures = 0;
      this.#failuresInRow = 0;
    } catch (error) {
      // Logs only the first failure, because an outage of an hour causes thousands of attempts.
      if (this.#failures === 0) {
        this.#logger?.warn({ err: error }, 'records could not be written to the store; retrying');
      }
      this.#failures += 1;
      const longestPause = this.#longestPauseAfter(error);
      // A different kind of failure starts with a short pause again, for example a database error after a store error.
      this.#failuresInRow = longestPause === this.#longestPause ? this.#failuresInRow + 1 : 1;
      this.#longestPause = longestPause;
    }
  }

  #longestPauseAfter(error: unknown): number {
    if (error instanceof DatabaseError) return longestForDatabaseMilliseconds;
    return this.#projection.hasReachedStore ? longestPauseMilliseconds : longestForSnapshotMilliseconds;
  }

  #shouldGoOn(): boolean {
    return this.#isWanted && this.#failures === 0 && !this.#isStopped;
  }

  #pause(): number {
    if (this.#failures === 0) return Math.min(pollMilliseconds, this.#projection.dueIn ?? pollMilliseconds);
    return Math.min(firstPauseMilliseconds * 2 ** (this.#failuresInRow - 1), this.#longestPause);
  }
}
