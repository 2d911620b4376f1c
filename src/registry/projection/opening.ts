import type { Clock } from '../../gateway/store-ports.js';
import { noteServers, type History } from './history.js';
import type { Lease } from './lease.js';

/** Dependencies of Opening. */
export interface OpeningOptions {
  readonly lease: Pick<Lease, 'finish'>;
  readonly clock: Clock;
  /** A monotonic clock, in milliseconds. */
  readonly monotonic: () => number;
  /** The maximum time for which a gateway is allowed to use its cached records, plus one second, in milliseconds. */
  readonly longestLifetimeMilliseconds: number;
}

const nothing = { names: [], revision: 0 };

/**
 * The wait after a loss of data. Gateways that are missing in the roster (the database's list of gateways) could use
 * old records. Until those records have expired, no change counts as in force.
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
   * Ends the wait if its time has passed. If another process began the wait and did not end it, starts the whole wait
   * again: this process does not know how much of it has passed.
   */
  async goOn({ generation, isOpen, servers }: History): Promise<void> {
    const { lease, longestLifetimeMilliseconds } = this.#options;
    if (isOpen) this.#wait = null;
    else if (this.#wait?.generation !== generation) {
      const opensAt = this.begin(generation, longestLifetimeMilliseconds);
      await lease.finish(nothing, (transaction) => noteServers(transaction, { servers: servers ?? [], opensAt }));
    } else if (this.dueIn === 0) {
      const opened = { servers: servers ?? [], opensAt: null };
      if (await lease.finish(nothing, (transaction) => noteServers(transaction, opened))) this.#wait = null;
    }
  }
}
