/** A request body that is being buffered. */
export interface BufferedBody {
  readonly merchantId: string;
  /** Memory that the body takes, in bytes. */
  bytes: number;
  /**
   * Called when the body is dropped because the memory is exhausted. The memory of the body has already been released.
   */
  readonly refuse: () => void;
}

/** The buffered bodies of one merchant, the oldest first. */
interface Share {
  bytes: number;
  readonly bodies: Set<BufferedBody>;
}

/**
 * The memory for request bodies that have not arrived completely, shared by all upstreams of a process. A single
 * merchant is allowed to use it all. When the memory is exhausted, the merchant with the most bytes loses its oldest
 * body. Bodies of honest clients arrive quickly, so the oldest body is a slow upload.
 * A request whose body is buffered here has no permit (slot at the upstream) yet, so the service has not seen it.
 * Bodies of requests with a permit do not count here, because the number of permits limits them.
 */
export class BodyBuffers {
  readonly #maxBytes: number;
  readonly #shares = new Map<string, Share>();
  #bytes = 0;
  /** Number of bodies that were dropped because the memory was exhausted. */
  refused = 0;

  /** @param maxBytes maximum memory for bodies that have not arrived completely, in bytes */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Memory in use, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Registers a body of a merchant before its first byte is buffered. `refuse` is called if the body is dropped. */
  hold(merchantId: string, refuse: () => void): BufferedBody {
    const body: BufferedBody = { merchantId, bytes: 0, refuse };
    const share = this.#shares.get(merchantId) ?? { bytes: 0, bodies: new Set() };
    share.bodies.add(body);
    this.#shares.set(merchantId, share);
    return body;
  }

  /**
   * Counts more bytes for a buffered request body. While the limit is exceeded, drops the oldest body of the merchant
   * that uses the most memory, and refuses its request. The dropped body can be the given one.
   */
  grow(body: BufferedBody, bytes: number): void {
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

  /** Releases the memory of a body. */
  release(body: BufferedBody): void {
    const share = this.#shares.get(body.merchantId);
    if (share?.bodies.delete(body) !== true) return;
    this.#bytes -= body.bytes;
    share.bytes -= body.bytes;
    if (share.bodies.size === 0) this.#shares.delete(body.merchantId);
  }

  /** Returns the bodies of the merchant that uses the most memory; in a tie, of the merchant whose body just grew. */
  #largest(grown: Share): Share {
    let largest = grown;
    for (const share of this.#shares.values()) if (share.bytes > largest.bytes) largest = share;
    return largest;
  }
}
