import type { RecordsStore, StoredMeta } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { hasHad, readHistory } from './history.js';
import { strangeNames } from './pages.js';

/** What a look at a store needs. */
export interface OwnStoreOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  /** Asked between two pages; false ends the look. */
  readonly mayGoOn: () => Promise<boolean>;
}

/**
 * Refuses a store that is another registry's. What the database does not know is removed when everything is written anew, and on a
 * wrong or empty database that would be every key of every merchant.
 */
export class OwnStore {
  readonly #options: OwnStoreOptions;
  /** Of what was refused: all that would make the answer another one, so that a large store is not read again and again. */
  #refused: { readonly of: string; readonly error: Error } | null = null;

  constructor(options: OwnStoreOptions) {
    this.#options = options;
  }

  /**
   * Says whether to go on; false where the look was ended.
   * @throws Error where the store has a history that this database never had, or names none, and most of what it holds is strange to it
   */
  async require({ generation }: StoredMeta): Promise<boolean> {
    const { database, store, mayGoOn } = this.#options;
    if (generation !== null && (await hasHad(database, generation))) return true;
    const history = await readHistory(database);
    const of = JSON.stringify([generation, history]);
    if (this.#refused?.of === of) throw this.#refused.error;
    let [strange, known] = [0, 0];
    for await (const page of strangeNames(database, store)) {
      strange += page.unknown.length;
      known += page.length - page.unknown.length;
      if (!(await mayGoOn())) return false;
    }
    if (strange <= known) return true;
    const error = new Error(
      `the store is another registry's: of its ${strange + known} records this database knows ${known}. Is it the right database, ` +
        'and the right Redis? To replace what is there all the same, delete its record mg:meta: gateways answer 503 until all is written',
    );
    this.#refused = { of, error };
    throw error;
  }
}
