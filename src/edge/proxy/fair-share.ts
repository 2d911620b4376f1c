import { GatewayError } from '../request/errors.js';

/** How long the request of another merchant shows that places are contended for, in milliseconds. */
const contentionMilliseconds = 60_000;
/** A merchant may hold so many times as many places as are still free. */
const shareOfFree = 3;

interface Asker {
  readonly merchantId: string;
  at: number;
}

/**
 * The places of requests in flight at one upstream. A merchant that is alone may take all of them. Where another one has
 * asked within the last minute, none may hold more than three times as many as are free: one alone gets three quarters,
 * two get three sevenths each, and there is always a place left for whoever has none.
 */
export class FairShare {
  readonly #places: number;
  readonly #now: () => number;
  readonly #held = new Map<string, number>();
  #taken = 0;
  #latest: Asker | null = null;
  #other: Asker | null = null;

  /** @param now milliseconds by a clock that nobody sets */
  constructor(places: number, now: () => number = () => performance.now()) {
    this.#places = places;
    this.#now = now;
  }

  /** How many places are taken. */
  get taken(): number {
    return this.#taken;
  }

  /**
   * Takes a place, and returns what gives it back.
   * @throws GatewayError upstream_busy
   */
  take(merchantId: string): () => void {
    this.#note(merchantId);
    const held = this.#held.get(merchantId) ?? 0;
    const free = this.#places - this.#taken;
    if (free <= 0) throw new GatewayError('upstream_busy', `${this.#taken} requests are in flight`);
    if (held >= shareOfFree * free && this.#isContended()) {
      throw new GatewayError(
        'upstream_busy',
        `the merchant has ${held} requests in flight, and ${free} places are free`,
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

  /** Whether another merchant than the one that just asked has asked lately. */
  #isContended(): boolean {
    return this.#other !== null && this.#now() - this.#other.at < contentionMilliseconds;
  }
}
