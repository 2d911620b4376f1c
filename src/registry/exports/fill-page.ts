const mostEntries = 500;
/**
 * Maximum page size in characters of JSON. Clients limit the size of responses, and a large response blocks other
 * requests while it is built.
 */
const mostCharacters = 4 * 1024 * 1024;

/** Provides the content of a page: reads rows, and converts each row to an entry. */
interface PageSource<Row, Entry> {
  /** Rows per query. If a page gets too long, the next page reads some of the rows again. */
  readonly readAtOnce: number;
  /** Reads at most `limit` rows whose ids sort after `after`, sorted by id. */
  readonly read: (after: string, limit: number) => Promise<readonly Row[]>;
  readonly idOf: (row: Row) => string;
  readonly entryOf: (row: Row) => Entry;
}

/**
 * Fills a page with entries, up to a maximum number of entries and characters. If the first entry alone exceeds the
 * maximum of characters, the page contains only this entry. If the last row fills a page, an empty page follows.
 * @param place the id after which the page begins
 * @returns the entries, and as `last` the id of the last entry; `last` is null if no page follows
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
