import type { RecordsStore, StoredMeta } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { databaseName, hasHad } from './history.js';
import type { History } from './history.js';
import { strangeNames } from './pages.js';

/** What a look at a store needs. */
export interface OwnStoreOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  /** Asked between two pages; false ends the look. */
  readonly mayGoOn: () => Promise<boolean>;
}

const howToReplace =
  'Is it the right database, and the right Redis? To replace what is there all the same, delete its record mg:meta: ' +
  'gateways may answer 503 until all is written';

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
   * @throws Error where the store names another database; or where it names none, has a history that this database never had, and
   * most of what it holds is strange to it
   */
  async require(meta: StoredMeta, history: History): Promise<boolean> {
    const { database, store, mayGoOn } = this.#options;
    const { generation } = meta;
    if (generation === history.generation) return true;
    if (meta.database !== undefined) {
      if (meta.database === (await databaseName(database))) return true;
      throw new Error(`the store is that of another database (${meta.database}). ${howToReplace}`);
    }
    if (generation !== null && (await hasHad(database, generation))) return true;
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
      `the store is another registry's: of its ${strange + known} records this database knows ${known}. ${howToReplace}`,
    );
    this.#refused = { of, error };
    throw error;
  }
}
