import type { TorExits } from '../../gateway/ports.js';
import type { IpAddress } from '../../policy/ip-address.js';

/** How a list is kept fresh. */
export interface RefreshOptions {
  /** Reads a whole new list; rejects where there is none that can be used. */
  readonly read: () => Promise<TorExits>;
  readonly everyMinutes: number;
  /** Told why a refresh failed; the list before it stays. */
  readonly onFailure: (error: unknown) => void;
}

/** Tor exits that are read again from time to time and swapped whole. A failed refresh never empties the list. */
export class RefreshedTorExits implements TorExits {
  #current: TorExits;
  readonly #timer: NodeJS.Timeout;

  private constructor(first: TorExits, { read, everyMinutes, onFailure }: RefreshOptions) {
    this.#current = first;
    this.#timer = setInterval(() => {
      read().then((next) => (this.#current = next), onFailure);
    }, everyMinutes * 60_000).unref();
  }

  /** Reads the first list; without one there is nothing to start with, and the reason is thrown. */
  static async start(options: RefreshOptions): Promise<RefreshedTorExits> {
    return new RefreshedTorExits(await options.read(), options);
  }

  has(address: IpAddress): boolean {
    return this.#current.has(address);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
