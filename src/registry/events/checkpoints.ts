import type { NoteSigner } from '../../evidence/signed-note.js';
import type { Clock, Logger, Timers } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { storeCheckpoint } from './chain.js';

/** Dependencies of EventCheckpoints. */
export interface EventCheckpointsOptions {
  readonly database: RegistryDatabase;
  readonly signer: NoteSigner;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly logger?: Logger | undefined;
}

const everyMilliseconds = 60_000;

/**
 * Once a minute, signs the end of the hash chain of events and logs the signature, if there are new events. An attacker
 * with write access to the database, but without the signing key, cannot forge a signature. This attacker also cannot
 * delete the copy in the log.
 */
export class EventCheckpoints {
  readonly #options: EventCheckpointsOptions;
  #hasFailed = false;
  #running: Promise<void> = Promise.resolve();
  #isStopped = false;
  #cancelTimer: () => void = () => undefined;

  constructor(options: EventCheckpointsOptions) {
    this.#options = options;
  }

  /** Signs the end of the chain once a minute until `stop()`. */
  start(): void {
    if (this.#isStopped) return;
    this.#cancelTimer = this.#options.timers.after(everyMilliseconds, () => {
      this.#running = this.sign().finally(() => {
        this.start();
      });
    });
  }

  /** Stops the timer, and signs the events that are not signed yet. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancelTimer();
    await this.#running;
    await this.sign();
  }

  /** Signs the end of the hash chain of events, if it is not signed already. */
  async sign(): Promise<void> {
    const { database, signer, clock, logger } = this.#options;
    try {
      const note = await storeCheckpoint(database, signer, clock.now());
      if (note !== null) logger?.info({ checkpoint: note }, 'signed the end of the hash chain of events');
      this.#hasFailed = false;
    } catch (error) {
      // Logs only the first failure of an outage. Otherwise an outage would add a line to the log each minute.
      if (!this.#hasFailed) logger?.warn({ err: error }, 'the hash chain of events could not be signed; retrying');
      this.#hasFailed = true;
    }
  }
}
