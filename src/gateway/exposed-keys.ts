import { KeyStoreUnavailable, type KeyLookup, type KeyStore } from './key-store.js';
import type { Clock } from './ports.js';

const mostAtOnce = 16;
const mostPerSecond = 100;

/**
 * Looks up the owner of an exposed key. A client exposes its key if it sends the key over plain HTTP or through Tor.
 * The request is then denied before the normal key look-up, and this class looks up the key after the response. The
 * rate and the concurrency of these look-ups are limited, so that denied requests cannot overload the key store.
 */
export class ExposedKeys {
  readonly #keyStore: Pick<KeyStore, 'find'>;
  readonly #clock: Clock;
  readonly #counts: Record<string, number> = { https_required: 0, tor_blocked: 0 };
  #underWay = 0;
  #second = 0;
  #inSecond = 0;

  constructor(keyStore: Pick<KeyStore, 'find'>, clock: Clock) {
    this.#keyStore = keyStore;
    this.#clock = clock;
  }

  /** Looks up a key. Returns null if the store is unavailable or the limit of look-ups is reached. */
  async find(lookupId: string): Promise<KeyLookup | null> {
    if (!this.#mayLookUp()) return null;
    this.#underWay += 1;
    try {
      return await this.#keyStore.find(lookupId);
    } catch (error) {
      if (error instanceof KeyStoreUnavailable) return null;
      throw error;
    } finally {
      this.#underWay -= 1;
    }
  }

  /**
   * Counts a denied request that exposed its API key, also if the look-up failed. Does not count the request if the
   * look-up showed that the store does not contain the key.
   * @param code the denial code; only `https_required` (plain HTTP) and `tor_blocked` are counted
   * @param keyLookup the result of the look-up; null if the look-up failed
   */
  count(code: string, keyLookup: KeyLookup | null): void {
    const before = this.#counts[code];
    if (before !== undefined && keyLookup?.credential !== null) this.#counts[code] = before + 1;
  }

  /** Returns the number of requests that exposed a key, by denial code. */
  counts(): Readonly<Record<string, number>> {
    return this.#counts;
  }

  #mayLookUp(): boolean {
    const second = Math.floor(this.#clock.now() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#inSecond = 0;
    }
    if (this.#underWay >= mostAtOnce || this.#inSecond >= mostPerSecond) return false;
    this.#inSecond += 1;
    return true;
  }
}
