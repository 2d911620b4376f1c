import { DatabaseError } from '../database/database-error.js';
import type { Logger } from '../rest/answer-errors.js';

/** How time passes: does something later, unless it is cancelled before. */
export interface Timers {
  after(milliseconds: number, act: () => void): () => void;
}

/** What is done again and again. */
export interface PeriodicTaskOptions {
  /** What it is about, for the log. */
  readonly name: string;
  /** Does some of it; true where there may be more to do at once. */
  readonly act: () => Promise<boolean>;
  readonly pauseMilliseconds: number;
  readonly timers: Timers;
  readonly logger?: Logger | undefined;
}

const longestPauseMilliseconds = 30_000;
/** A database says nothing when it can be used again. */
const longestForDatabaseMilliseconds = 500;

/** Does something whenever there is something to do; after a failure more and more seldom. */
export class PeriodicTask {
  readonly #options: PeriodicTaskOptions;
  #running: Promise<void> = Promise.resolve();
  #isStopped = false;
  #failures = 0;
  #longestPause = longestPauseMilliseconds;
  #cancelTimer: () => void = () => undefined;

  constructor(options: PeriodicTaskOptions) {
    this.#options = options;
  }

  /** Begins at once. */
  start(): void {
    this.#running = this.#run();
  }

  /** Ends after what it is just doing. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelTimer();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { name, act, timers, logger } = this.#options;
    try {
      while (!this.#isStopped && (await act()));
      this.#failures = 0;
    } catch (error) {
      this.#failures += 1;
      this.#longestPause = error instanceof DatabaseError ? longestForDatabaseMilliseconds : longestPauseMilliseconds;
      // Told once: an outage of an hour is thousands of attempts.
      if (this.#failures === 1 || !(error instanceof DatabaseError))
        logger?.error({ err: error, task: name, failures: this.#failures }, 'a task failed; it is tried again');
    }
    if (this.#isStopped) return;
    this.#cancelTimer = timers.after(this.#pause(), () => {
      this.start();
    });
  }

  #pause(): number {
    const { pauseMilliseconds } = this.#options;
    return Math.max(pauseMilliseconds, Math.min(pauseMilliseconds * 2 ** this.#failures, this.#longestPause));
  }
}
