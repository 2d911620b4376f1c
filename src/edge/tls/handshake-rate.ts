import { LRUCache } from 'lru-cache';
import type { Socket } from 'node:net';
import { growingTo } from '../../gateway/growing-to.js';
import { TokenBucket } from '../../gateway/token-bucket.js';
import type { IpAddress } from '../../policy/ip-address.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { sourceOf } from '../request/client-address.js';
import { peekClientHello } from './client-hello.js';

/** How many handshakes one source may make. */
export interface HandshakeLimits {
  readonly handshakesPerSecond: number;
  /** At once, after it has been quiet. */
  readonly handshakeBurst: number;
}

/** Of a source that is forgotten the whole burst is there again, as after a few seconds without a handshake. */
const maxSources = 20_000;
/** The part of its burst that a source keeps for clients that offer a session. */
const reservedShare = 0.25;

/**
 * Limits the handshakes of each source: whoever has no key can have them made, and each takes the event loop for a
 * millisecond. A connection is counted when it begins, because a handshake that fails costs as much, and given back when its
 * session turns out to be resumed. The last quarter of a burst is for clients that offer a session, so that others at their
 * address do not keep them out; only where it has come to that the ClientHello is looked at. Trusted proxies speak for
 * many clients and are not counted.
 */
export class HandshakeRate {
  readonly #limits: HandshakeLimits;
  readonly #trustedProxies: IpRanges;
  readonly #now: () => number;
  readonly #reserved: number;
  readonly #sources = new LRUCache<string, TokenBucket>(growingTo(maxSources));

  /** @param now milliseconds by a clock that nobody sets */
  constructor(limits: HandshakeLimits, trustedProxies: IpRanges, now: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#trustedProxies = trustedProxies;
    this.#now = now;
    this.#reserved = Math.floor(limits.handshakeBurst * reservedShare);
  }

  /**
   * Counts a connection on which a handshake is to be made.
   * @param remote null: nobody knows it
   * @param decide called once, unless the connection is closed before, or silent for so long
   */
  admit(
    socket: Socket,
    remote: IpAddress | null,
    timeoutMilliseconds: number,
    decide: (isAdmitted: boolean) => void,
  ): void {
    if (remote === null || this.#trustedProxies.contains(remote)) {
      decide(true);
      return;
    }
    const bucket = this.#bucketOf(sourceOf(remote));
    if (bucket.take(this.#reserved)) {
      decide(true);
      return;
    }
    peekClientHello(socket, timeoutMilliseconds, (offersSession) => {
      decide(offersSession && bucket.take());
    });
  }

  /** Gives back what a connection counted whose session was resumed. */
  giveBack(remote: IpAddress | null): void {
    if (remote !== null) this.#sources.get(sourceOf(remote))?.giveBack();
  }

  #bucketOf(source: string): TokenBucket {
    const known = this.#sources.get(source);
    if (known !== undefined) return known;
    const { handshakesPerSecond, handshakeBurst } = this.#limits;
    const bucket = new TokenBucket(handshakesPerSecond, handshakeBurst, this.#now);
    this.#sources.set(source, bucket);
    return bucket;
  }
}
