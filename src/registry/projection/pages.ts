import type { RecordsStore, StoreEntry } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { keyEntry, merchantEntry, recordPrefixes, storedKeys, unknownNames } from './current-records.js';

/** Number of records or names per page. */
export const pageLength = 500;

/**
 * Yields every record of the database in pages, merchants first. Reads each page only when the caller requests that
 * page, so that the records are current.
 */
export async function* storedPages(database: RegistryDatabase): AsyncGenerator<StoreEntry[]> {
  for (let after = ''; ;) {
    const rows = await database
      .selectFrom('merchants')
      .selectAll()
      .where('id', '>', after)
      .orderBy('id')
      .limit(pageLength)
      .execute();
    const last = rows.at(-1);
    if (last === undefined) break;
    yield rows.map(merchantEntry);
    after = last.id;
  }
  for (let after = ''; ;) {
    const rows = await storedKeys(database).where('key_id', '>', after).orderBy('key_id').limit(pageLength).execute();
    const last = rows.at(-1);
    if (last === undefined) break;
    yield rows.map(keyEntry);
    after = last.key_id;
  }
}

/** A page of names from the store. */
export interface NamesPage {
  readonly length: number;
  /** The names of records that the database does not have. */
  readonly unknown: readonly string[];
}

/**
 * Reads the record names (Redis keys) in the store in pages. Yields for each page its length, and the names that the
 * database does not have. A page can be empty.
 */
export async function* unknownStoreNames(database: RegistryDatabase, store: RecordsStore): AsyncGenerator<NamesPage> {
  for (const prefix of recordPrefixes) {
    let page: string[] = [];
    for await (const name of store.names(prefix)) {
      page.push(name);
      if (page.length < pageLength) continue;
      yield await unknownAmong(database, page);
      page = [];
    }
    yield await unknownAmong(database, page);
  }
}

async function unknownAmong(database: RegistryDatabase, names: readonly string[]): Promise<NamesPage> {
  return { length: new Set(names).size, unknown: await unknownNames(database, names) };
}
