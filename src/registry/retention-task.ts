import type { Logger, Timers } from '../gateway/store-ports.js';

/**
 * Pause between two batches of deletions. A database change that has to wait for a batch runs during this pause, so the
 * change waits for at most one batch.
 */
const betweenBatchesMilliseconds = 50;
const betweenRoundsMilliseconds = 60_000;

/** Dependencies of RetentionTask. */
export interface RetentionOptions {
  readonly timers: Timers;
  /** The plural noun for the data in log messages. */
  readonly what: string;
  /** Deletes one batch. Returns whether there could be more to delete. */
  readonly forget: () => Promise<boolean>;
  /** Called after a failed batch, so that the next call of `forget` begins with the oldest data again. */
  readonly onFailure?: () => void;
  readonly logger?: Logger | undefined;
}

/**
 * Deletes old data in rounds of one or more batches. Pauses briefly between two batches, and for a minute between two
 * rounds.
 */
export class RetentionTask {
  readonly #options: RetentionOptions;
  #hasFailed = false;
  #running: Promise<unknown> = Promise.resolve();
  #isStopped = false;
  #cancelTimer: () => void = () => undefined;

  constructor(options: RetentionOptions) {
    this.#options = options;
  }

  /** Starts the first batch after a pause. Further batches follow until `stop()`. */
  start(pauseMilliseconds = betweenBatchesMilliseconds): void {
    if (this.#isStopped) return;
    this.#cancelTimer = this.#options.timers.after(pauseMilliseconds, () => {
      this.#running = this.#tryForgetting().then((isMore) => {
        this.start(isMore ? betweenBatchesMilliseconds : betweenRoundsMilliseconds);
      });
    });
  }

  /** Stops after the current batch. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelTimer();
    await this.#running;
  }

  async #tryForgetting(): Promise<boolean> {
    const { what, forget, onFailure, logger } = this.#options;
    try {
      const isMore = await forget();
      this.#hasFailed = false;
      return isMore;
    } catch (error) {
      // Logs only the first failure, because an outage of an hour causes many attempts.
      if (!this.#hasFailed)
        logger?.warn({ err: error }, `${what} older than the retention period could not be deleted; retrying`);
      this.#hasFailed = true;
      onFailure?.();
      return false;
    }
  }
}

/**
 * Provides a time that has certainly passed, from which the age of data is measured. The system clock alone does not
 * suffice: if it is set forward by mistake, young data seems old enough to delete. The provided time starts at the time
 * of the newest data and advances with the monotonic clock, but is never later than the system clock. It can be earlier
 * than the true time. Data is then kept longer than necessary.
 */
export class PassedTime {
  readonly #monotonic: () => number;
  /**
   * Two times: when the monotonic clock showed `at`, the time `moment` had certainly passed. Null before data was
   * found.
   */
  #anchor: { readonly moment: number; readonly at: number } | null = null;

  /** @param monotonic a monotonic clock, in milliseconds */
  constructor(monotonic: (() => number) | undefined) {
    this.#monotonic = monotonic ?? (() => performance.now());
  }

  /**
   * Returns a time that has certainly passed; null if there is no data.
   * @param newest reads the time of the newest data
   */
  async atMost(now: number, newest: () => Promise<number | null>): Promise<number | null> {
    const at = this.#monotonic();
    if (this.#anchor === null) {
      const moment = await newest();
      if (moment === null) return null;
      this.#anchor = { moment: Math.min(now, moment), at };
    }
    const { moment, at: since } = this.#anchor;
    return Math.min(now, moment + (at - since));
  }
}
