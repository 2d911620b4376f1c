import { DatabaseError } from '../../database/database-error.js';
import type { Logger, Timers, WatchedRecords } from '../../gateway/store-ports.js';
import type { EvictionGuard } from './repair-pause.js';
import { Projection, type ProjectionOptions } from './projection.js';
import type { RepairFigures } from './record-repairs.js';

/** How a projector runs. */
export interface ProjectorOptions extends Omit<ProjectionOptions, 'shouldStop' | 'onPublished'> {
  readonly timers: Timers;
}

/** How often changes of other processes, and an emptied store, are looked for. */
const pollMilliseconds = 1000;
/** Whoever forges records in a loop must not have this process do nothing else. */
const betweenRepairsMilliseconds = 20;
const firstPauseMilliseconds = 100;
const longestPauseMilliseconds = 10_000;
/** A database says nothing when it can be used again. */
const longestForDatabaseMilliseconds = 500;
/** A Cluster sends no event when its masters agree again. A look that fails writes nothing, so it is repeated as often as one that succeeds. */
const longestForLookMilliseconds = pollMilliseconds;

/** Projects at once after a change of this process, and otherwise now and then; after a failure more and more seldom. */
export class Projector {
  readonly #projection: Projection;
  readonly #session: ProjectorOptions['session'];
  readonly #timers: Timers;
  readonly #logger: Logger | undefined;
  #running: Promise<void> | null = null;
  #isWanted = false;
  #isStopped = false;
  #isAsked = false;
  #failures = 0;
  /** Failures of one kind since the store was last found: they make the pause longer. */
  #failuresInVain = 0;
  #longestPause = longestPauseMilliseconds;
  #cancelTimer: () => void = () => undefined;
  #next: { readonly pass: Promise<void>; readonly ended: () => void } | null = null;

  constructor({ timers, logger, ...options }: ProjectorOptions) {
    this.#projection = new Projection({
      ...{ ...options, logger },
      shouldStop: () => this.#isStopped,
      onPublished: () => {
        this.#tellWaiting();
      },
    });
    this.#session = options.session;
    this.#timers = timers;
    this.#logger = logger;
    void this.#watch(options.store.watched);
    const { inbox } = options.store;
    const answer = (): void => {
      this.#answer();
    };
    if (inbox !== null) inbox.onWork = answer;
  }

  /** Begins as soon as possible; where it is at it, it will look once more. */
  wake(): void {
    if (this.#isStopped) return;
    this.#isWanted = true;
    this.#running ??= this.#passes().finally(() => {
      this.#running = null;
      // Whoever came while the last pass ended must not wait for the poll.
      if (this.#shouldGoOn()) this.wake();
    });
  }

  /** Sees to a change of this process: another one may be the one that projects. */
  changed(): void {
    this.#session.tell();
    this.wake();
  }

  /** Tries at once, whatever has failed: the store can be asked again. */
  storeFound(): void {
    this.#failuresInVain = 0;
    this.wake();
  }

  /** Settles when a change was next published, or a pass has ended, well or not. */
  nextPass(): Promise<void> {
    if (this.#next === null) {
      let ended = (): void => undefined;
      const pass = new Promise<void>((resolve) => (ended = resolve));
      this.#next = { pass, ended };
    }
    return this.#next.pass;
  }

  /** Whether the last pass failed: then it is not known what the store holds. */
  get isFailing(): boolean {
    return this.#failures > 0;
  }

  /** What Redis does with the store, as far as an operator has to see to it. */
  get eviction(): Pick<EvictionGuard, 'evictedKeys' | 'warnings'> {
    return this.#projection.eviction;
  }

  /** Whether every record of this revision, and of those before it, is in the store. */
  hasProjected(revision: number): Promise<boolean> {
    return this.#projection.hasProjected(revision);
  }

  /** What was compared with the database, and repaired. */
  get repairFigures(): RepairFigures {
    return this.#projection.repairFigures;
  }

  /** What the roster is kept by: this process alone while it projects. */
  get projection(): Pick<Projection, 'lease' | 'settledIn' | 'isComplete'> {
    return this.#projection;
  }

  /** Ends after the batch at hand, and lets another process go on. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelTimer();
    await this.#running;
    try {
      await this.#projection.end();
    } catch (error) {
      this.#logger?.warn({ err: error }, 'the lease of the projection could not be given up; it ends by itself');
    }
  }

  /** Begins where somebody has changed a record, or notices were lost. What has failed is tried again in its own time. */
  async #watch(watched: WatchedRecords | null): Promise<void> {
    while (watched !== null && !this.#isStopped) {
      await watched.next();
      if (!this.isFailing) this.wake();
      await new Promise<void>((resolve) => void this.#timers.after(betweenRepairsMilliseconds, resolve));
    }
  }

  /** Begins where a gateway asks for records, and not for each question. While a store is filled they are taken between two pages. */
  #answer(): void {
    if (this.isFailing || this.#isStopped || this.#isAsked || this.#projection.settledIn === null) return;
    this.#isAsked = true;
    this.wake();
    this.#timers.after(betweenRepairsMilliseconds, () => {
      this.#isAsked = false;
      this.wake();
    });
  }

  async #passes(): Promise<void> {
    this.#cancelTimer();
    do {
      this.#isWanted = false;
      await this.#pass();
      this.#tellWaiting();
    } while (this.#shouldGoOn());
    if (!this.#isStopped)
      this.#cancelTimer = this.#timers.after(this.#pause(), () => {
        this.wake();
      });
  }

  #tellWaiting(): void {
    this.#next?.ended();
    this.#next = null;
  }

  async #pass(): Promise<void> {
    try {
      await this.#projection.run();
      if (this.#failures > 0) this.#logger?.info({ failures: this.#failures }, 'records are projected again');
      this.#failures = 0;
      this.#failuresInVain = 0;
    } catch (error) {
      // Told once: an outage of an hour is thousands of attempts.
      if (this.#failures === 0) {
        this.#logger?.warn({ err: error }, 'records could not be projected; it is tried again until they are');
      }
      this.#failures += 1;
      const longestPause = this.#longestPauseAfter(error);
      // A store that can be looked at again is another state: the pauses begin anew.
      this.#failuresInVain = longestPause === this.#longestPause ? this.#failuresInVain + 1 : 1;
      this.#longestPause = longestPause;
    }
  }

  #longestPauseAfter(error: unknown): number {
    if (error instanceof DatabaseError) return longestForDatabaseMilliseconds;
    return this.#projection.hasReachedStore ? longestPauseMilliseconds : longestForLookMilliseconds;
  }

  #shouldGoOn(): boolean {
    return this.#isWanted && this.#failures === 0 && !this.#isStopped;
  }

  #pause(): number {
    if (this.#failures === 0) return Math.min(pollMilliseconds, this.#projection.dueIn ?? pollMilliseconds);
    return Math.min(firstPauseMilliseconds * 2 ** (this.#failuresInVain - 1), this.#longestPause);
  }
}
