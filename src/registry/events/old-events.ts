import type { NoteSigner } from '../../evidence/signed-note.js';
import type { Projection } from '../projection/projection.js';
import type { Clock, Logger, Timers } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { deleteEvents, newestEvent } from './repository.js';

/** Dependencies of OldEvents. */
export interface OldEventsOptions {
  readonly database: RegistryDatabase;
  /** Retention period in days. */
  readonly days: number;
  /** The clock from which the timestamps of events are read. */
  readonly clock: Clock;
  readonly timers: Timers;
  readonly projection: Pick<Projection, 'lease' | 'settledIn'>;
  /** Signs the end of what is deleted. Default: nothing signs it. */
  readonly signer?: NoteSigner | null | undefined;
  readonly logger?: Logger | undefined;
  /** A monotonic clock, in milliseconds. */
  readonly monotonic?: (() => number) | undefined;
}

const dayMilliseconds = 24 * 60 * 60 * 1000;
/** Pause between two batches, so that changes run in between and wait for at most one batch. */
const betweenBatchesMilliseconds = 50;
const betweenRoundsMilliseconds = 60_000;

/**
 * Deletes events older than the retention period, in batches. Only the process that writes to the store does so.
 * If the clock is set forward by mistake, young events must not be deleted. The reference time therefore starts at the
 * time of the newest event when the process starts, and advances on the monotonic clock. It is never ahead of the
 * clock, and events are kept longer if it is behind.
 */
export class OldEvents {
  readonly #options: OldEventsOptions;
  readonly #monotonic: () => number;
  /** A time that has certainly passed (`moment`), and the monotonic time at which this was known (`at`). */
  #anchor: { readonly moment: number; readonly at: number } | null = null;
  /** Sequence number of the last event that was checked in this round. */
  #seen = 0;
  #deleted = 0;
  #hasFailed = false;
  #running: Promise<unknown> = Promise.resolve();
  #isStopped = false;
  #cancelTimer: () => void = () => undefined;

  constructor(options: OldEventsOptions) {
    this.#options = options;
    this.#monotonic = options.monotonic ?? (() => performance.now());
  }

  /** Starts after a pause and runs until `stop()`. */
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

  /**
   * Checks one batch of events, oldest first, and deletes the old ones.
   * @returns whether there may be more to delete
   */
  async forget(): Promise<boolean> {
    const { database, days, clock, projection, signer = null, logger } = this.#options;
    if (projection.settledIn === null || !(await projection.lease.take())) return this.#endRound();
    const now = clock.now();
    const moment = await this.#timeAtMost(now);
    if (moment === null) return this.#endRound();
    const until = moment - days * dayMilliseconds;
    const { seen, forgotten, isEnd } = await deleteEvents(database, { after: this.#seen, until, now, signer });
    this.#seen = seen;
    this.#deleted += forgotten;
    if (!isEnd) return true;
    if (this.#deleted > 0)
      logger?.info({ events: this.#deleted, days }, 'deleted events older than the retention period');
    return this.#endRound();
  }

  async #tryForgetting(): Promise<boolean> {
    try {
      const isMore = await this.forget();
      this.#hasFailed = false;
      return isMore;
    } catch (error) {
      // Logs only the first failure, because an outage of an hour causes many attempts.
      if (!this.#hasFailed) this.#options.logger?.warn({ err: error }, 'old events could not be deleted; retrying');
      this.#hasFailed = true;
      return this.#endRound();
    }
  }

  #endRound(): false {
    [this.#seen, this.#deleted] = [0, 0];
    return false;
  }

  /** Returns a time that has certainly passed; null if there are no events. */
  async #timeAtMost(now: number): Promise<number | null> {
    const at = this.#monotonic();
    if (this.#anchor === null) {
      const newest = await newestEvent(this.#options.database);
      if (newest === null) return null;
      this.#anchor = { moment: Math.min(now, newest.at), at };
    }
    const { moment, at: since } = this.#anchor;
    return Math.min(now, moment + (at - since));
  }
}
