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
