import { LRUCache } from 'lru-cache';
import type { Socket } from 'node:net';
import { lruOptions } from '../../gateway/growing-to.js';
import { TokenBucket } from '../../gateway/token-bucket.js';
import type { IpAddress } from '../../policy/ip-address.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { sourceOf } from '../../policy/client-address.js';
import { peekClientHello } from './client-hello.js';

/** Limits on the TLS handshakes of one source (IPv4 address or IPv6 /64). */
export interface HandshakeLimits {
  readonly handshakesPerSecond: number;
  /** Maximum number of handshakes at once after an idle time. */
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
 * Limits the TLS handshakes of each source (IPv4 address or IPv6 /64). Clients without a key can trigger handshakes,
 * and each one blocks the event loop for a millisecond. A connection counts when it begins, because a failed handshake
 * costs as much as a successful one. A resumed session costs less, so it is refunded.
 * The last quarter of a burst is reserved for clients that offer to resume a session, so that other clients at the same
 * address cannot lock them out. The ClientHello is inspected only while no more than this reserve is left. Trusted
 * proxies carry many clients and are exempt.
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
   * Counts a connection before its handshake.
   * @param remote null if unknown; such a connection is admitted
   * @param timeoutMilliseconds timeout for the ClientHello
   * @param decide called once with the decision; never called if the connection first closes or times out
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
