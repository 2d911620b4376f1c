import { KeyStoreUnavailable } from './ports.js';
import type { Clock, KeyAnswer, KeyStore } from './ports.js';

const mostAtOnce = 16;
const mostPerSecond = 100;

/**
 * Finds out whose key was sent with a request that was refused before its key was looked up, over plain HTTP or from Tor
 * say: that key is exposed. The caller has its answer by then. Look-ups are few at once and few in a second, so that
 * refused requests cost the key store no more than that, whatever is sent.
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

  /** Asks for a key; null where nobody can or may be asked now. */
  async find(lookupId: string): Promise<KeyAnswer | null> {
    if (!this.#mayAsk()) return null;
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
   * Counts a request whose key somebody else may have read.
   * @param code why it was refused: it counts where that is plain HTTP or Tor
   * @param answer what is known of its key. Whoever sends made-up keys exposes none; of one that nobody could look up, nobody knows
   */
  count(code: string, answer: KeyAnswer | null): void {
    const before = this.#counts[code];
    if (before !== undefined && answer?.credential !== null) this.#counts[code] = before + 1;
  }

  /** How many there were, by code. */
  counts(): Readonly<Record<string, number>> {
    return this.#counts;
  }

  #mayAsk(): boolean {
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
