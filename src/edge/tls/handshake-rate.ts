import { LRUCache } from 'lru-cache';
import type { Socket } from 'node:net';
import { lruOptions } from '../../gateway/growing-to.js';
import { TokenBucket } from '../../gateway/token-bucket.js';
import type { IpAddress } from '../../policy/ip-address.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { sourceOf, throttledSource } from '../../policy/client-address.js';
import { peekClientHello } from './client-hello.js';

/** Limits on the TLS handshakes of one source (IPv4 address or IPv6 /64). */
export interface HandshakeLimits {
  readonly handshakesPerSecond: number;
  /** Maximum number of handshakes that a source can make at once after it was idle. */
  readonly handshakeBurst: number;
}

/**
 * Maximum number of sources tracked. An evicted source gets its full burst again, as it would after a few seconds
 * without a handshake.
 */
const maxSources = 20_000;
/** Fraction of a source's burst that is reserved for clients that offer to resume a session. */
const reservedShare = 0.25;

/**
 * Limits the TLS handshakes of each source (IPv4 address or IPv6 /64). Clients can trigger handshakes without an API
 * key, and each handshake blocks the event loop for a millisecond. A handshake counts from the start of its connection,
 * because a failed handshake costs as much as a successful one. The handshake of a resumed session costs less, so it is
 * refunded.
 * The last quarter of a burst is reserved for clients that offer to resume a session. Otherwise, other clients at the
 * same address could use up the whole burst. The ClientHello contains the offer, and is read only when no more than the
 * reserve is left. Trusted proxies are exempt, because they carry many clients.
 */
export class HandshakeRate {
  readonly #limits: HandshakeLimits;
  readonly #trustedProxies: IpRanges;
  readonly #now: () => number;
  readonly #reserved: number;
  readonly #sources = new LRUCache<string, TokenBucket>(lruOptions(maxSources));

  /** @param now monotonic clock, in milliseconds */
  constructor(limits: HandshakeLimits, trustedProxies: IpRanges, now: () => number = () => performance.now()) {
    this.#limits = limits;
    this.#trustedProxies = trustedProxies;
    this.#now = now;
    this.#reserved = Math.floor(limits.handshakeBurst * reservedShare);
  }

  /**
   * Counts a connection before its handshake. Admits a connection whose address is unknown.
   * @param remote the source address; null if unknown
   * @param timeoutMilliseconds timeout for the ClientHello
   * @param decide called once with the decision. Not called if the connection closes, or if the ClientHello does not
   *   arrive in time
   */
  admit(
    socket: Socket,
    remote: IpAddress | null,
    timeoutMilliseconds: number,
    decide: (isAdmitted: boolean) => void,
  ): void {
    const source = throttledSource(remote, this.#trustedProxies);
    if (source === null) {
      decide(true);
      return;
    }
    const bucket = this.#bucketOf(source);
    if (bucket.take(this.#reserved)) {
      decide(true);
      return;
    }
    peekClientHello(socket, timeoutMilliseconds, (offersSession) => {
      decide(offersSession && bucket.take());
    });
  }

  /** Refunds the handshake of a connection whose session was resumed, because resumption costs little CPU time. */
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
