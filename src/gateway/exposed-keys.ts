import { KeyStoreUnavailable } from './ports.js';
import type { Clock, KeyLookup, KeyStore } from './ports.js';

const mostAtOnce = 16;
const mostPerSecond = 100;

/**
 * Looks up the owner of a key in a request that was refused before the key look-up, for example over plain HTTP or from
 * Tor: such a key is exposed. Runs after the response. Look-ups are limited per second and in parallel, so refused
 * requests put only a bounded load on the key store.
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

  /** Looks up a key; null if the store is unavailable or the limit is reached. */
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
   * Counts a request that exposed its key.
   * @param code the denial; only plain HTTP (`https_required`) and Tor (`tor_blocked`) count
   * @param keyLookup result of the look-up. A key that the store does not know exposes nothing; without a result the
   *   key counts as exposed
   */
  count(code: string, keyLookup: KeyLookup | null): void {
    const before = this.#counts[code];
    if (before !== undefined && keyLookup?.credential !== null) this.#counts[code] = before + 1;
  }

  /** Number of exposed keys by denial code. */
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
