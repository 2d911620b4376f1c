import { createHash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import type { ChangedRecords, Difference, StoreEntry, WatchedRecords } from '../../../gateway/store-ports.js';
import { objectIn } from '../store-state.js';

/** A record as it is to be stored: its full name, its text, and the digest of what it replaces. An empty text takes it away. */
export interface Replacement {
  readonly name: string;
  readonly text: string;
  readonly digest: string;
}

/** The store that is watched. Names are full names. */
export interface WatchSource {
  /** What the name of every record begins with. */
  readonly prefix: string;
  epoch(): number;
  /** The text that a record is to be stored as; empty where there is to be none. */
  textOf(entry: StoreEntry, generation: string): string;
  /** The stored bytes in the order of the names; null for a record that is not there. */
  read(names: readonly string[]): Promise<readonly (Buffer | null)[]>;
  /** Resolves when every notice has been heard of what was changed before. */
  catchUp(): Promise<void>;
  /** Writes them where what they replace is there still, or where this registry is the one that writes. */
  replace(replacements: readonly Replacement[]): Promise<void>;
}

/** What the digest of nothing is. */
export const digestOfNothing = 'nothing';

const mostTexts = 20_000;
/** Nearly all records are shorter; of a longer one the database is asked. */
const longestText = 4_096;
/** Of records that wait to be compared. Beyond that, the comparison of all records finds them. */
const mostNames = 100_000;
/** The database knows no longer name; the comparison of all records finds such a one. */
const longestName = 256;
const namesAtATime = 500;

/**
 * Finds the records that somebody else has changed. Redis reports each write, also those of this registry: a record whose text is
 * the one that this registry wrote last is as it should be.
 */
export class RecordWatch implements WatchedRecords {
  readonly #source: WatchSource;
  readonly #prefixes: readonly string[];
  /** The texts that this registry wrote last, by full names, the oldest first. */
  readonly #own = new Map<string, string>();
  readonly #noticed = new Set<string>();
  readonly #changed = new Set<string>();
  #isWatching = false;
  #isIncomplete = true;
  /** Something came while nobody waited for it. */
  #hasNews = false;
  #reading: Promise<void> | null = null;
  #next: { readonly settled: Promise<void>; readonly settle: () => void } | null = null;

  /** @param prefixes what the full names of watched records begin with */
  constructor(source: WatchSource, prefixes: readonly string[]) {
    this.#source = source;
    this.#prefixes = prefixes;
  }

  /** This registry is about to write these texts under their full names. */
  writing(records: readonly Pick<Replacement, 'name' | 'text'>[]): void {
    if (!this.#isWatching) return;
    for (const { name, text } of records) this.#remember(name, text);
  }

  /** Notices came of these names. */
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

  /** Notices may have been lost, or everything was changed. */
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
  ): Promise<{ epoch: number; differences: Difference[] }> {
    const source = this.#source;
    const stored = await source.read(entries.map(({ name }) => source.prefix + name));
    const differences = entries.flatMap((entry, index): Difference[] => {
      const bytes = stored[index] ?? null;
      const text = source.textOf(entry, generation);
      if (bytes === null ? text === '' : bytes.equals(Buffer.from(text))) return [];
      const read = bytes === null ? null : objectIn(bytes.toString('utf8'));
      return [{ ...entry, isStored: bytes !== null, stored: read, digest: digestOf(bytes) }];
    });
    // A flush has to be seen as one, and not as the loss of each record.
    if (differences.length > 0) await source.catchUp();
    return { epoch: source.epoch(), differences };
  }

  async repair(differences: readonly Difference[], generation: string): Promise<void> {
    const source = this.#source;
    const replacements = differences.map((difference) => {
      const { name, digest } = difference;
      return { name: source.prefix + name, text: source.textOf(difference, generation), digest };
    });
    this.writing(replacements);
    await source.replace(replacements);
  }

  async #read(): Promise<void> {
    // One look for all notices of a turn.
    await turn();
    while (this.#noticed.size > 0) {
      const names = takeFrom(this.#noticed, namesAtATime);
      // A store that cannot be read is compared when it can be again.
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
