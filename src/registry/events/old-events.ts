import type { NoteSigner } from '../../evidence/signed-note.js';
import type { Projection } from '../projection/projection.js';
import type { Clock, Logger, Timers } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { PassedTime, RetentionTask } from '../retention-task.js';
import { deleteEvents, newestEvent } from './repository.js';

/** Dependencies of OldEvents. */
export interface OldEventsOptions {
  readonly database: RegistryDatabase;
  /** Retention period in days. */
  readonly days: number;
  /** The clock that gave the events their timestamps. */
  readonly clock: Clock;
  readonly timers: Timers;
  readonly projection: Pick<Projection, 'lease' | 'settledIn'>;
  /**
   * Signs the hash of the last deleted event. The remaining chain begins with this hash, so a signature makes it
   * possible to verify that chain. Default: the hash is not signed.
   */
  readonly signer?: NoteSigner | null | undefined;
  readonly logger?: Logger | undefined;
  /** A monotonic clock, in milliseconds. */
  readonly monotonic?: (() => number) | undefined;
}

const dayMilliseconds = 24 * 60 * 60 * 1000;

/**
 * Deletes events older than the retention period, in batches. Only the process with the lease (the right to write to
 * the store) deletes events. In other processes, this class does nothing.
 */
export class OldEvents {
  readonly #options: OldEventsOptions;
  readonly #passed: PassedTime;
  readonly #task: RetentionTask;
  /** Sequence number of the last event that the current round has checked. Each round begins at the oldest event. */
  #seen = 0;
  #deleted = 0;

  constructor(options: OldEventsOptions) {
    this.#options = options;
    this.#passed = new PassedTime(options.monotonic);
    const { timers, logger } = options;
    const forget = (): Promise<boolean> => this.forget();
    this.#task = new RetentionTask({ timers, logger, what: 'events', forget, onFailure: () => this.#endRound() });
  }

  /** Starts the first batch of deletions after a delay. Further batches follow until `stop()`. */
  start(): void {
    this.#task.start();
  }

  /** Stops the deletions after the current batch. */
  stop(): Promise<void> {
    return this.#task.stop();
  }

  /**
   * Checks one batch of events, oldest first, and deletes the old ones.
   * @returns true if this round of deletions continues with another batch; false if the round has ended
   */
  async forget(): Promise<boolean> {
    const { database, days, clock, projection, signer = null, logger } = this.#options;
    if (projection.settledIn === null || !(await projection.lease.take())) return this.#endRound();
    const now = clock.now();
    const moment = await this.#passed.atMost(now, async () => (await newestEvent(database))?.at ?? null);
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

  #endRound(): false {
    [this.#seen, this.#deleted] = [0, 0];
    return false;
  }
}
