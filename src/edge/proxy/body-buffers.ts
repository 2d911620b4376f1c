/** A body that is being buffered. */
export interface HeldBody {
  readonly merchantId: string;
  /** Bytes of memory that it takes. */
  bytes: number;
  /** Called when it has to go because the memory is used up; it is let go by then. */
  readonly refuse: () => void;
}

/** What one merchant has buffered: its bodies, the oldest first. */
interface Share {
  bytes: number;
  readonly bodies: Set<HeldBody>;
}

/**
 * The memory in which bodies wait until they have arrived, for all upstreams of a process together. A merchant that is alone
 * may use all of it. When it is used up, the merchant with the most bytes loses the body that it began first: an honest
 * client's arrives at once, so the oldest is the one that trickles. Its request has no place yet, so its service has not
 * seen it. The body of a request that has a place is no longer counted here: places bound those.
 */
export class BodyBuffers {
  readonly #maxBytes: number;
  readonly #shares = new Map<string, Share>();
  #bytes = 0;
  /** How many bodies had to go because the memory was used up. */
  refused = 0;

  /** @param maxBytes how much memory bodies may take before they have arrived */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** How many bytes of bodies are held now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Begins to hold a body of a merchant, of which nothing has come yet. */
  hold(merchantId: string, refuse: () => void): HeldBody {
    const body: HeldBody = { merchantId, bytes: 0, refuse };
    const share = this.#shares.get(merchantId) ?? { bytes: 0, bodies: new Set() };
    share.bodies.add(body);
    this.#shares.set(merchantId, share);
    return body;
  }

  /** Has a body take more memory. Another one may have to go for that, or this one itself. */
  grow(body: HeldBody, bytes: number): void {
    const share = this.#shares.get(body.merchantId);
    if (share?.bodies.has(body) !== true) return;
    this.#bytes += bytes;
    share.bytes += bytes;
    body.bytes += bytes;
    while (this.#bytes > this.#maxBytes) {
      const [oldest] = this.#largest(share).bodies;
      if (oldest === undefined) return;
      this.release(oldest);
      this.refused += 1;
      oldest.refuse();
    }
  }

  /** Lets go of a body. */
  release(body: HeldBody): void {
    const share = this.#shares.get(body.merchantId);
    if (share?.bodies.delete(body) !== true) return;
    this.#bytes -= body.bytes;
    share.bytes -= body.bytes;
    if (share.bodies.size === 0) this.#shares.delete(body.merchantId);
  }

  /** The share with the most bytes; of several, the one that just grew. */
  #largest(grown: Share): Share {
    let largest = grown;
    for (const share of this.#shares.values()) if (share.bytes > largest.bytes) largest = share;
    return largest;
  }
}
