import { DatabaseError } from '../database/database-error.js';
import type { Logger } from '../rest/error-responses.js';

/** `after` runs `act` once after a delay, and returns a function that cancels the timer. */
export interface Timers {
  after(milliseconds: number, act: () => void): () => void;
}

/** Options of a periodic task. */
export interface PeriodicTaskOptions {
  /** The task's name in the log. */
  readonly name: string;
  /** Does a part of the work. Resolves with true if more work could be due; `act` is then called again at once. */
  readonly act: () => Promise<boolean>;
  readonly pauseMilliseconds: number;
  readonly timers: Timers;
  readonly logger?: Logger | undefined;
}

const longestPauseMilliseconds = 30_000;
/**
 * Maximum pause between retries after a DatabaseError. It is short, because only a retry shows that the database works
 * again. A task whose normal pause is longer keeps its normal pause.
 */
const longestForDatabaseMilliseconds = 500;

/** Runs a task repeatedly, with a pause when no work is due, and with exponential backoff after failures. */
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

  /** Starts the task without an initial pause. */
  start(): void {
    this.#running = this.#run();
  }

  /** Stops the task, and waits until a call of `act` in progress has ended. */
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
      // Log only the first failure of a database outage: an outage of one hour causes thousands of attempts.
      if (this.#failures === 1 || !(error instanceof DatabaseError))
        logger?.error({ err: error, task: name, failures: this.#failures }, 'a task failed; retrying');
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
