const mostEntries = 500;
/** Of JSON. A client takes no answer without end, and whoever makes one holds up everybody else. */
const mostCharacters = 4 * 1024 * 1024;

/** Where the entries of a page come from. */
export interface PageSource<Row, Entry> {
  /** How many are read at a time; of them one page may leave some out. */
  readonly readAtOnce: number;
  /** In the order of their ids. */
  readonly read: (after: string, limit: number) => Promise<readonly Row[]>;
  readonly idOf: (row: Row) => string;
  readonly entryOf: (row: Row) => Entry;
}

/**
 * Fills a page with what comes after a place, up to a number of entries or a length; at least one, however long.
 * @returns the id of the page's last entry; null: nothing comes after it
 */
export async function fillPage<Row, Entry>(
  place: string,
  { readAtOnce, read, idOf, entryOf }: PageSource<Row, Entry>,
): Promise<{ entries: Entry[]; last: string | null }> {
  const entries: Entry[] = [];
  let [last, characters] = [place, 0];
  for (;;) {
    const rows = await read(last, readAtOnce);
    for (const row of rows) {
      const entry = entryOf(row);
      characters += JSON.stringify(entry).length;
      if (entries.length > 0 && characters > mostCharacters) return { entries, last };
      entries.push(entry);
      last = idOf(row);
      if (entries.length === mostEntries) return { entries, last };
    }
    if (rows.length < readAtOnce) return { entries, last: null };
  }
}
