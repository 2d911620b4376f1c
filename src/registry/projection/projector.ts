import { DatabaseError } from '../../database/database-error.js';
import type { Logger, Timers, WatchedRecords } from '../../gateway/store-ports.js';
import type { EvictionGuard } from './repair-pause.js';
import { Projection, type ProjectionOptions } from './projection.js';
import type { RepairCounts } from './record-repairs.js';

/** Options of a projector. */
export interface ProjectorOptions extends Omit<ProjectionOptions, 'shouldStop' | 'onPublished'> {
  readonly timers: Timers;
}

/** Interval for finding changes of other processes, and an emptied store. */
const pollMilliseconds = 1000;
/** Minimum interval between repairs: a client that forges records in a loop must not occupy this process. */
const betweenRepairsMilliseconds = 20;
const firstPauseMilliseconds = 100;
const longestPauseMilliseconds = 10_000;
/** Longest pause after a database error: a database sends no event when it is back. */
const longestForDatabaseMilliseconds = 500;
/**
 * Longest pause after a failed snapshot of the store: a Cluster sends no event when its masters agree again. A failed
 * snapshot writes nothing, so it is retried as often as it is polled.
 */
const longestForSnapshotMilliseconds = pollMilliseconds;

/** Projects at once after a change of this process, and otherwise at the poll interval. Backs off after failures. */
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
  /** Failures of one kind in a row since the store was last reachable; they lengthen the pause. */
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

  /** Starts a pass as soon as possible; during a pass, requests another one. */
  wake(): void {
    if (this.#isStopped) return;
    this.#isWanted = true;
    this.#running ??= this.#passes().finally(() => {
      this.#running = null;
      // A call during the end of the last pass must not wait for the poll.
      if (this.#shouldGoOn()) this.wake();
    });
  }

  /** Handles a change of this process. Notifies other processes too: one of them may be the one that projects. */
  changed(): void {
    this.#session.notify();
    this.wake();
  }

  /** Retries at once after earlier failures: the store is reachable again. */
  storeFound(): void {
    this.#failuresInRow = 0;
    this.wake();
  }

  /** Resolves at the next published change, or at the end of the next pass, failed or not. */
  nextPass(): Promise<void> {
    if (this.#next === null) {
      let ended = (): void => undefined;
      const pass = new Promise<void>((resolve) => (ended = resolve));
      this.#next = { pass, ended };
    }
    return this.#next.pass;
  }

  /** Whether the last pass failed. The content of the store is then unknown. */
  get isFailing(): boolean {
    return this.#failures > 0;
  }

  /** Redis' evictions and memory policy, as far as an operator has to act on them. */
  get eviction(): Pick<EvictionGuard, 'evictedKeys' | 'warnings'> {
    return this.#projection.eviction;
  }

  /** Whether all records up to this revision are in the store. */
  hasProjected(revision: number): Promise<boolean> {
    return this.#projection.hasProjected(revision);
  }

  /** Counts of compared and repaired records. */
  get repairCounts(): RepairCounts {
    return this.#projection.repairCounts;
  }

  /** What the roster needs: only the projecting process maintains it. */
  get projection(): Pick<Projection, 'lease' | 'settledIn' | 'isComplete'> {
    return this.#projection;
  }

  /** Stops after the current batch and releases the lease. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelTimer();
    await this.#running;
    try {
      await this.#projection.end();
    } catch (error) {
      this.#logger?.warn({ err: error }, 'the projection lease could not be released; it expires by itself');
    }
  }

  /**
   * Starts a pass when someone has changed a record or notifications were lost. Failed passes keep their own retry
   * pause.
   */
  async #watch(watched: WatchedRecords | null): Promise<void> {
    while (watched !== null && !this.#isStopped) {
      await watched.next();
      if (!this.isFailing) this.wake();
      await new Promise<void>((resolve) => void this.#timers.after(betweenRepairsMilliseconds, resolve));
    }
  }

  /**
   * Starts a pass when a gateway asks for records, at most once per interval. During a rebuild the asks are taken
   * between two pages.
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
      if (this.#failures > 0) this.#logger?.info({ failures: this.#failures }, 'records are projected again');
      this.#failures = 0;
      this.#failuresInRow = 0;
    } catch (error) {
      // Log only the first failure: an outage of an hour causes thousands of attempts.
      if (this.#failures === 0) {
        this.#logger?.warn({ err: error }, 'records could not be projected; retrying');
      }
      this.#failures += 1;
      const longestPause = this.#longestPauseAfter(error);
      // A different kind of failure, e.g. after the store is reachable again, starts a new backoff.
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
