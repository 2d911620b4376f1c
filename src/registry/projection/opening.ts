import type { Clock } from '../../gateway/store-ports.js';
import { noteServers, type History } from './history.js';
import type { Lease } from './lease.js';

/** Dependencies of Opening. */
export interface OpeningOptions {
  readonly lease: Pick<Lease, 'finish'>;
  readonly clock: Clock;
  /** A monotonic clock, in milliseconds. */
  readonly monotonic: () => number;
  /** The maximum time for which a gateway may use its cached records, plus one second, in milliseconds. */
  readonly longestLifetimeMilliseconds: number;
}

const nothing = { names: [], revision: 0 };

/**
 * The wait after a loss of data, because gateways that are missing in the roster may use old records. Until these have
 * expired, no change of the generation counts as in force.
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

  /** Drops the wait, because another process writes to the store now. */
  leave(): void {
    this.#wait = null;
  }

  /** Ends the wait when its time has passed. Starts it again if another process began it and did not end it. */
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
