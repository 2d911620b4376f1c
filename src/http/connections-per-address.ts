import type { Socket } from 'node:net';
import type { IpAddress } from '../policy/ip-address.js';
import type { IpRanges } from '../policy/ip-ranges.js';
import { sourceOf } from './source.js';

/**
 * Counts the connections of each address, so that one caller cannot take every place of the listener. Trusted proxies
 * speak for many callers and are not counted.
 */
export class ConnectionsPerAddress {
  readonly #most: number;
  readonly #trustedProxies: IpRanges;
  readonly #open = new Map<string, number>();

  constructor(most: number, trustedProxies: IpRanges) {
    this.#most = most;
    this.#trustedProxies = trustedProxies;
  }

  /** Gives a connection its place until it closes; says whether its address had one left. */
  take(socket: Socket, address: IpAddress | null): boolean {
    if (address === null || this.#trustedProxies.contains(address)) return true;
    const source = sourceOf(address);
    const before = this.#open.get(source) ?? 0;
    if (before >= this.#most) return false;
    this.#open.set(source, before + 1);
    socket.once('close', () => {
      const left = (this.#open.get(source) ?? 1) - 1;
      if (left === 0) this.#open.delete(source);
      else this.#open.set(source, left);
    });
    return true;
  }
}
