import type { Projection } from '../projection/projection.js';
import type { Clock, Logger, Timers } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { forgetEvents, newestEvent } from './repository.js';

/** What old events are forgotten with. */
export interface OldEventsOptions {
  readonly database: RegistryDatabase;
  /** How long an event is kept, in days. */
  readonly days: number;
  /** The clock that events are dated by. */
  readonly clock: Clock;
  readonly timers: Timers;
  readonly projection: Pick<Projection, 'lease' | 'settledIn'>;
  readonly logger?: Logger | undefined;
  /** A time in milliseconds that only goes forward, at the pace of real time. */
  readonly monotonic?: (() => number) | undefined;
}

const dayMilliseconds = 24 * 60 * 60 * 1000;
/** A change waits for a batch at most, and gets its turn between two of them. */
const betweenBatchesMilliseconds = 50;
const betweenRoundsMilliseconds = 60_000;

/**
 * Forgets events that are older than they are kept, batch by batch. The process that projects does this, and no other.
 *
 * A clock that somebody puts forward must not make events old. So the time by which they are judged begins, with the process, at the
 * newest event, and goes on at the pace of real time. It is never ahead of the clock, and may be behind it: then events stay for longer.
 */
export class OldEvents {
  readonly #options: OldEventsOptions;
  readonly #monotonic: () => number;
  /** A moment that had come, and when that was by the time that only goes forward. */
  #anchor: { readonly moment: number; readonly at: number } | null = null;
  /** Everything up to here was looked at in this round. */
  #seen = 0;
  #forgotten = 0;
  #hasFailed = false;
  #running: Promise<unknown> = Promise.resolve();
  #isStopped = false;
  #cancelTimer: () => void = () => undefined;

  constructor(options: OldEventsOptions) {
    this.#options = options;
    this.#monotonic = options.monotonic ?? (() => performance.now());
  }

  /** Begins soon, and goes on until `stop()`. */
  start(pauseMilliseconds = betweenBatchesMilliseconds): void {
    if (this.#isStopped) return;
    this.#cancelTimer = this.#options.timers.after(pauseMilliseconds, () => {
      this.#running = this.#tryForgetting().then((isMore) => {
        this.start(isMore ? betweenBatchesMilliseconds : betweenRoundsMilliseconds);
      });
    });
  }

  /** Ends after the batch at hand. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelTimer();
    await this.#running;
  }

  /** Looks at one batch of events, the oldest first; true where there may be more to forget. */
  async forget(): Promise<boolean> {
    const { database, days, clock, projection, logger } = this.#options;
    if (projection.settledIn === null || !(await projection.lease.take())) return this.#endRound();
    const now = clock.now();
    const moment = await this.#timeAtMost(now);
    if (moment === null) return this.#endRound();
    const until = moment - days * dayMilliseconds;
    const { seen, forgotten, isEnd } = await forgetEvents(database, { after: this.#seen, until, now });
    this.#seen = seen;
    this.#forgotten += forgotten;
    if (!isEnd) return true;
    if (this.#forgotten > 0)
      logger?.info({ events: this.#forgotten, days }, 'events are forgotten that are older than they are kept');
    return this.#endRound();
  }

  async #tryForgetting(): Promise<boolean> {
    try {
      const isMore = await this.forget();
      this.#hasFailed = false;
      return isMore;
    } catch (error) {
      // Told once: an outage of an hour is many attempts.
      if (!this.#hasFailed)
        this.#options.logger?.warn({ err: error }, 'old events could not be forgotten; it is tried again');
      this.#hasFailed = true;
      return this.#endRound();
    }
  }

  #endRound(): false {
    [this.#seen, this.#forgotten] = [0, 0];
    return false;
  }

  /** A moment that has surely come; null while there is no event. */
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
