import type { Clock } from '../../gateway/store-ports.js';
import { noteServers, type History } from './history.js';
import type { Lease } from './lease.js';

/** What the wait is kept with. */
export interface OpeningOptions {
  readonly lease: Pick<Lease, 'finish'>;
  readonly clock: Clock;
  /** A time in milliseconds that only goes forward. */
  readonly monotonic: () => number;
  /** How long a gateway may use what it holds at most, and a second. */
  readonly longestLifetimeMilliseconds: number;
}

const nothing = { names: [], revision: 0 };

/** The wait for gateways that the database may have forgotten: until it ends, no change of its generation is in force. */
export class Opening {
  readonly #options: OpeningOptions;
  #wait: { readonly generation: string; readonly at: number } | null = null;

  constructor(options: OpeningOptions) {
    this.#options = options;
  }

  /** In how many milliseconds it ends; null where nothing is waited for. */
  get dueIn(): number | null {
    return this.#wait === null ? null : Math.max(0, this.#wait.at - this.#options.monotonic());
  }

  /** Begins anew. @returns until when it lasts, in milliseconds since 1970; null: nothing is waited for */
  begin(generation: string, milliseconds: number): number | null {
    const { monotonic, clock } = this.#options;
    this.#wait = milliseconds === 0 ? null : { generation, at: monotonic() + milliseconds };
    return milliseconds === 0 ? null : clock.now() + milliseconds;
  }

  /** Another process sees to it. */
  leave(): void {
    this.#wait = null;
  }

  /** Ends it where it is over. Another process may have ended while it waited: then it begins anew. */
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
