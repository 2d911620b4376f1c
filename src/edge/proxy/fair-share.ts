import { GatewayError } from '../request/errors.js';

/** How long another merchant's request makes the permits contended (limited per merchant), in milliseconds. */
const contentionMilliseconds = 60_000;
/** Under contention, a merchant may hold at most this many times as many permits as are free. */
const shareOfFree = 3;

interface Requester {
  readonly merchantId: string;
  at: number;
}

/**
 * Hands out the permits (slots) for requests in flight at one upstream. A merchant without competition may take all
 * permits. If another merchant has requested a permit within the last minute, a merchant may hold at most three times
 * as many permits as are free. One busy merchant then gets at most three quarters of the permits, and two get three
 * sevenths each. One permit always stays free for a merchant that has no permit yet.
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
   * Takes a permit and returns the function that releases it.
   * @throws GatewayError upstream_busy if no permit is available to the merchant
   */
  take(merchantId: string): () => void {
    this.#note(merchantId);
    const held = this.#held.get(merchantId) ?? 0;
    const free = this.#places - this.#taken;
    if (free <= 0) throw new GatewayError('upstream_busy', `all ${this.#places} permits of maxInFlight are in use`);
    if (held >= shareOfFree * free && this.#isContended()) {
      throw new GatewayError(
        'upstream_busy',
        `the merchant has used its fair share of maxInFlight: ${held} requests in flight, ${free} permits free`,
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

  /** Whether a merchant other than the latest one has requested a permit within `contentionMilliseconds`. */
  #isContended(): boolean {
    return this.#other !== null && this.#now() - this.#other.at < contentionMilliseconds;
  }
}
