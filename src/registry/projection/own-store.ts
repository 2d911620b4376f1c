import type { MetaRecord, RecordsStore } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { readHistory } from './history.js';
import { strangeNames } from './pages.js';

/**
 * Refuses a store that is another registry's. What the database does not know is removed when everything is written anew, and on a
 * wrong or empty database that would be every key of every merchant.
 * @throws Error where the store was written by another history, and most of what it holds is strange to this database
 */
export async function requireOwn(database: RegistryDatabase, store: RecordsStore, meta: MetaRecord): Promise<void> {
  const { generation } = await readHistory(database);
  if (meta.generation === generation) return;
  let [strange, known] = [0, 0];
  for await (const page of strangeNames(database, store)) {
    strange += page.unknown.length;
    known += page.length - page.unknown.length;
  }
  if (strange <= known) return;
  throw new Error(
    `the store is another registry's: of its ${strange + known} records this database knows ${known}. Is it the right database, ` +
      'and the right Redis? To replace what is there all the same, delete the record meta: until all is written anew, gateways answer 503',
  );
}
