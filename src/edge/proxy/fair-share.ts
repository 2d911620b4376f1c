import { GatewayError } from '../request/errors.js';

/**
 * How long a merchant counts as a competitor after it has requested a permit (slot at the upstream). During this time,
 * permits are shared out between this merchant and the others.
 */
const contentionMilliseconds = 60_000;
/**
 * While permits are shared out, a merchant gets no further permit if it holds at least this many times the number of
 * free permits.
 */
const shareOfFree = 3;

interface Requester {
  readonly merchantId: string;
  at: number;
}

/**
 * Hands out the permits (slots) for requests in flight at one upstream. A merchant without competition can take all
 * permits. If another merchant has requested a permit within the last minute, a merchant gets no further permit while
 * it holds at least three times as many permits as are free. One busy merchant then gets at most three quarters of the
 * permits, and two get three sevenths each. A merchant that holds no permit can take any free permit.
 */
export class FairShare {
  readonly #places: number;
  readonly #now: () => number;
  readonly #held = new Map<string, number>();
  #taken = 0;
  #latest: Requester | null = null;
  #other: Requester | null = null;

  /** @param now monotonic clock, in milliseconds */
  constructor(places: number, now: () => number = () => performance.now()) {
    this.#places = places;
    this.#now = now;
  }

  /** Number of permits (slots for requests in flight) in use. */
  get taken(): number {
    return this.#taken;
  }

  /**
   * Takes a permit (slot for a request in flight) and returns the function that releases it.
   * @throws GatewayError upstream_busy if no permit is available to the merchant
   */
  take(merchantId: string): () => void {
    this.#note(merchantId);
    const held = this.#held.get(merchantId) ?? 0;
    const free = this.#places - this.#taken;
    if (free <= 0)
      throw new GatewayError(
        'upstream_busy',
        `the upstream has reached maxInFlight (requests in flight: ${this.#places})`,
      );
    if (held >= shareOfFree * free && this.#isContended()) {
      throw new GatewayError(
        'upstream_busy',
        `the merchant has used its fair share of maxInFlight: it has ${held} requests in flight, and the remaining capacity (${free}) is reserved for other merchants`,
      );
    }
    this.#taken += 1;
    this.#held.set(merchantId, held + 1);
    return () => {
      this.#giveBack(merchantId);
    };
  }

  #giveBack(merchantId: string): void {
    this.#taken -= 1;
    const held = (this.#held.get(merchantId) ?? 1) - 1;
    if (held === 0) this.#held.delete(merchantId);
    else this.#held.set(merchantId, held);
  }

  #note(merchantId: string): void {
    if (this.#latest?.merchantId === merchantId) {
      this.#latest.at = this.#now();
      return;
    }
    this.#other = this.#latest;
    this.#latest = { merchantId, at: this.#now() };
  }

  /**
   * Whether merchants compete for permits: besides the merchant of the latest request, another merchant has requested a
   * permit within the last `contentionMilliseconds`.
   */
  #isContended(): boolean {
    return this.#other !== null && this.#now() - this.#other.at < contentionMilliseconds;
  }
}
