import type { Clock } from '../../gateway/store-ports.js';
import { noteServers, type History } from './history.js';
import { type Lease, noRecords } from './lease.js';

/** Dependencies of Opening. */
export interface OpeningOptions {
  readonly lease: Pick<Lease, 'finish'>;
  readonly clock: Clock;
  /** A monotonic clock, in milliseconds. */
  readonly monotonic: () => number;
  /** The maximum time for which a gateway is allowed to use its cached records, plus one second, in milliseconds. */
  readonly longestLifetimeMilliseconds: number;
}

/**
 * The wait after a loss of data. After the loss, the roster (the database's list of gateways) could lack a gateway that
 * still uses old records. Until those records have expired, no change counts as in force.
 */
export class Opening {
  readonly #options: OpeningOptions;
  #wait: { readonly generation: string; readonly at: number } | null = null;

  constructor(options: OpeningOptions) {
    this.#options = options;
  }

  /** Milliseconds until the wait ends; null without a wait. */
  get dueIn(): number | null {
    return this.#wait === null ? null : Math.max(0, this.#wait.at - this.#options.monotonic());
  }

  /** Starts the wait. @returns the end of the wait, in milliseconds since 1970; null if there is nothing to wait for */
  begin(generation: string, milliseconds: number): number | null {
    const { monotonic, clock } = this.#options;
    this.#wait = milliseconds === 0 ? null : { generation, at: monotonic() + milliseconds };
    return milliseconds === 0 ? null : clock.now() + milliseconds;
  }

  /** Forgets the wait, because another process writes to the store now and keeps its own wait. */
  leave(): void {
    this.#wait = null;
  }

  /**
   * Ends the wait if its time has passed. If another process began a wait that has not ended, starts the whole wait
   * again, because this process does not know when that wait began.
   */
  async goOn({ generation, isOpen, servers }: History): Promise<void> {
    const { lease, longestLifetimeMilliseconds } = this.#options;
    if (isOpen) this.#wait = null;
    else if (this.#wait?.generation !== generation) {
      const opensAt = this.begin(generation, longestLifetimeMilliseconds);
      await lease.finish(noRecords, (transaction) => noteServers(transaction, { servers: servers ?? [], opensAt }));
    } else if (this.dueIn === 0) {
      const opened = { servers: servers ?? [], opensAt: null };
      if (await lease.finish(noRecords, (transaction) => noteServers(transaction, opened))) this.#wait = null;
    }
  }
}
