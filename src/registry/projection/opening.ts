import type { Clock } from '../../gateway/store-ports.js';
import { noteServers, type History } from './history.js';
import type { Lease } from './lease.js';

/** Options of the wait. */
export interface OpeningOptions {
  readonly lease: Pick<Lease, 'finish'>;
  readonly clock: Clock;
  /** A monotonic clock, in milliseconds. */
  readonly monotonic: () => number;
  /** The longest time for which a gateway may use its cached records, plus one second. */
  readonly longestLifetimeMilliseconds: number;
}

const nothing = { names: [], revision: 0 };

/**
 * The wait for gateways that the database may have forgotten. No change of its generation is in force before it ends.
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

  /** Starts the wait. @returns when it ends, in milliseconds since 1970; null without a wait */
  begin(generation: string, milliseconds: number): number | null {
    const { monotonic, clock } = this.#options;
    this.#wait = milliseconds === 0 ? null : { generation, at: monotonic() + milliseconds };
    return milliseconds === 0 ? null : clock.now() + milliseconds;
  }

  /** Forgets the wait: another process projects now. */
  leave(): void {
    this.#wait = null;
  }

  /** Ends the wait once it is over. If another process has ended during its own wait, the wait starts again. */
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
