import { createHash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import type { ChangedRecords, RecordDifference, StoreEntry, WatchedRecords } from '../../../gateway/store-ports.js';
import { objectIn } from '../store-state.js';

/**
 * The Redis key of a record, its new text, and the digest of the text to be replaced. An empty text deletes the record.
 */
export interface Replacement {
  readonly name: string;
  readonly text: string;
  readonly digest: string;
}

/** Access to the watched store, by Redis key. */
export interface WatchSource {
  /** The prefix of all Redis keys of the store. */
  readonly prefix: string;
  /** Returns a number that changes after a reconnect or a flush, and when invalidation messages may have been lost. */
  epoch(): number;
  /** Builds the text that a record must have according to the database; empty if the record must not exist. */
  textOf(entry: StoreEntry, generation: string): string;
  /** Reads the stored bytes of these Redis keys, in the same order; null for a missing record. */
  read(names: readonly string[]): Promise<readonly (Buffer | null)[]>;
  /** Resolves once the invalidation messages for all earlier changes have been handled. */
  catchUp(): Promise<void>;
  /**
   * Replaces records. In a Cluster, a record is replaced only if its stored text has the expected digest. On one
   * server, the records are replaced only if this registry is the current writer; the digests are ignored.
   */
  replace(replacements: readonly Replacement[]): Promise<void>;
}

/** The digest of a missing record. */
export const digestOfNothing = 'nothing';

const mostTexts = 20_000;
/**
 * The maximum length of a text that is remembered. A record with a longer text is compared with the database instead.
 * Nearly all records are shorter.
 */
const longestText = 4_096;
/**
 * Maximum number of Redis keys that wait for comparison. If there are more, all records are compared with the database.
 */
const mostNames = 100_000;
/**
 * Longest Redis key that is queued for comparison; the keys of records in the database are shorter. A record with a
 * longer key is found when all records are compared.
 */
const longestName = 256;
const namesAtATime = 500;

/**
 * Detects records that another client has changed. Redis sends an invalidation message for each write, including the
 * registry's own writes. A record is correct if its text is the text that this registry wrote last. Any other record
 * counts as changed and is compared with the database.
 */
export class RecordWatch implements WatchedRecords {
  readonly #source: WatchSource;
  readonly #prefixes: readonly string[];
  /** The texts that this registry last wrote, by Redis key, oldest first. */
  readonly #own = new Map<string, string>();
  readonly #noticed = new Set<string>();
  readonly #changed = new Set<string>();
  #isWatching = false;
  #isIncomplete = true;
  /** Whether changes were found while no caller waited in `next`. */
  #hasNews = false;
  #reading: Promise<void> | null = null;
  #next: { readonly settled: Promise<void>; readonly settle: () => void } | null = null;

  /** @param prefixes the prefixes of the Redis keys of the records to watch */
  constructor(source: WatchSource, prefixes: readonly string[]) {
    this.#source = source;
    this.#prefixes = prefixes;
  }

  /**
   * Remembers texts, so that the registry's own writes do not count as foreign changes. Must be called before the texts
   * are written.
   */
  writing(records: readonly Pick<Replacement, 'name' | 'text'>[]): void {
    if (!this.#isWatching) return;
    for (const { name, text } of records) this.#remember(name, text);
  }

  /** Handles invalidation messages for these Redis keys. */
  noticed(names: readonly string[]): void {
    if (!this.#isWatching) return;
    for (const name of names) {
      if (name.length > longestName || !this.#prefixes.some((prefix) => name.startsWith(prefix))) continue;
      if (this.#noticed.size < mostNames) this.#noticed.add(name);
      else this.#isIncomplete = true;
    }
    if (this.#noticed.size === 0) return;
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null;
    });
  }

  /**
   * Stops watching until the next `take`, which reports that all records must be compared. Must be called when
   * invalidation messages may have been lost, or any record may have changed.
   */
  missed(): void {
    this.rest();
    this.#settle();
  }

  take(most: number): ChangedRecords {
    this.#isWatching = true;
    const isIncomplete = this.#isIncomplete;
    this.#isIncomplete = false;
    const names = takeFrom(this.#changed, most);
    return { names: names.map((name) => name.slice(this.#source.prefix.length)), isIncomplete };
  }

  get isQuiet(): boolean {
    const isRead = this.#noticed.size === 0 && this.#changed.size === 0 && this.#reading === null;
    return this.#isWatching && !this.#isIncomplete && isRead;
  }

  next(): Promise<void> {
    if (this.#hasNews) {
      this.#hasNews = false;
      return Promise.resolve();
    }
    if (this.#next === null) {
      let settle = (): void => undefined;
      const settled = new Promise<void>((resolve) => (settle = resolve));
      this.#next = { settled, settle };
    }
    return this.#next.settled;
  }

  rest(): void {
    this.#isWatching = false;
    this.#isIncomplete = true;
    for (const held of [this.#own, this.#noticed, this.#changed]) held.clear();
  }

  async compare(
    entries: readonly StoreEntry[],
    generation: string,
  ): Promise<{ epoch: number; differences: RecordDifference[] }> {
    const source = this.#source;
    const stored = await source.read(entries.map(({ name }) => source.prefix + name));
    const differences = entries.flatMap((entry, index): RecordDifference[] => {
      const bytes = stored[index] ?? null;
      const text = source.textOf(entry, generation);
      if (bytes === null ? text === '' : bytes.equals(Buffer.from(text))) return [];
      const read = bytes === null ? null : objectIn(bytes.toString('utf8'));
      return [{ ...entry, isStored: bytes !== null, stored: read, digest: digestOf(bytes) }];
    });
    // A flush must not be treated as many single deletions, so wait for a pending message about a flush.
    if (differences.length > 0) await source.catchUp();
    return { epoch: source.epoch(), differences };
  }

  async repair(differences: readonly RecordDifference[], generation: string): Promise<void> {
    const source = this.#source;
    const replacements = differences.map((difference) => {
      const { name, digest } = difference;
      return { name: source.prefix + name, text: source.textOf(difference, generation), digest };
    });
    this.writing(replacements);
    await source.replace(replacements);
  }

  async #read(): Promise<void> {
    // Collect all messages of one event-loop turn, so that one read is enough for them.
    await turn();
    while (this.#noticed.size > 0) {
      const names = takeFrom(this.#noticed, namesAtATime);
      // If the read fails, the records count as changed and are compared with the database later.
      const texts = await this.#source.read(names).catch(() => null);
      if (!this.#isWatching) return;
      for (const [index, name] of names.entries()) if (!this.#isOwn(name, texts, index)) this.#suspect(name);
      if (this.#changed.size > 0) this.#settle();
    }
  }

  #isOwn(name: string, texts: readonly (Buffer | null)[] | null, index: number): boolean {
    const own = this.#own.get(name);
    if (own === undefined || texts === null) return false;
    return (texts[index]?.toString('utf8') ?? '') === own;
  }

  #suspect(name: string): void {
    if (this.#changed.size < mostNames) this.#changed.add(name);
    else this.#isIncomplete = true;
  }

  #remember(name: string, text: string): void {
    this.#own.delete(name);
    if (text.length <= longestText) this.#own.set(name, text);
    if (this.#own.size <= mostTexts) return;
    const [oldest = ''] = this.#own.keys();
    this.#own.delete(oldest);
  }

  #settle(): void {
    this.#hasNews = this.#next === null;
    this.#next?.settle();
    this.#next = null;
  }
}

function takeFrom(names: Set<string>, most: number): string[] {
  const taken: string[] = [];
  for (const name of names) {
    if (taken.length === most) break;
    names.delete(name);
    taken.push(name);
  }
  return taken;
}

function digestOf(bytes: Buffer | null): string {
  return bytes === null ? digestOfNothing : createHash('sha1').update(bytes).digest('hex');
}
