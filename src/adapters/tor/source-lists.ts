import type { IpAddress } from '../../policy/ip-address.js';
import { parseIpAddress } from '../../policy/ip-address.js';
import { admitExits } from './admitted-exits.js';
import type { AdmissionRules, AdmittedExits } from './admitted-exits.js';
import type { ExitListRecord, StoredSource } from './exit-list-record.js';
import { ExitListRefused } from './exit-list-refused.js';
import { expiresSince } from './list-date.js';
import type { ListDate } from './list-date.js';
import type { ExitSource } from './exit-source.js';
import type { Validators } from './source-content.js';

/** The last good list of a source. */
export interface SourceList extends AdmittedExits, Validators, Partial<ListDate> {
  /** When the source last had it, or said that it still has (ISO 8601, UTC). */
  readonly confirmedAt: string;
}

/** What is known of a source. */
export interface SourceState {
  /** When it was last read, with success or without; null: never. */
  readonly attemptedAt: string | null;
  /** Attempts in a row that failed. */
  readonly failures: number;
  /** Why the newest attempt failed; null where it did not. */
  readonly problem: string | null;
  readonly list: SourceList | null;
}

const unread: SourceState = { attemptedAt: null, failures: 0, problem: null, list: null };
/** Clocks of several machines differ a little; what is from further ahead would never age. */
const clockToleranceMilliseconds = 5 * 60_000;
/** So long the record keeps what another gateway reads and this one does not: during a change of the configuration. */
const foreignMilliseconds = 24 * 3_600_000;

/** The last good list of each source. One that fails takes nothing away from what it had, nor from the others. */
export class SourceLists {
  readonly #sources: readonly ExitSource[];
  readonly #rules: AdmissionRules;
  readonly #states = new Map<string, SourceState>();
  #foreign: readonly StoredSource[] = [];
  #revision = 0;

  constructor(sources: readonly ExitSource[], rules: AdmissionRules) {
    this.#sources = sources;
    this.#rules = rules;
  }

  /** Counts the changes of lists and of their confirmation. */
  get revision(): number {
    return this.#revision;
  }

  stateOf({ id }: ExitSource): SourceState {
    return this.#states.get(id) ?? unread;
  }

  /** A source was read, and has this list now. */
  keep(source: ExitSource, list: SourceList): void {
    this.#put(source, { attemptedAt: list.confirmedAt, failures: 0, problem: null, list });
  }

  /** A source was asked, and still has the list that it had. */
  confirm(source: ExitSource, at: string): void {
    const { list } = this.stateOf(source);
    if (list !== null) this.keep(source, { ...list, confirmedAt: at });
  }

  /** A source could not be read, or its list was refused: the one before stays. */
  fail(source: ExitSource, at: string, problem: string): void {
    const { failures, list } = this.stateOf(source);
    this.#states.set(source.id, { attemptedAt: at, failures: failures + 1, problem, list });
  }

  /**
   * Takes over what a record has newer. A file is this machine's own: its list is taken from elsewhere only while it
   * cannot be read here.
   * @returns the sources whose list in the record was refused, with the reason; theirs before stays
   */
  async adopt(record: ExitListRecord, now: number): Promise<(readonly [ExitSource, ExitListRefused])[]> {
    const refused: (readonly [ExitSource, ExitListRefused])[] = [];
    for (const source of this.#sources) {
      const stored = record.sources.find(({ id }) => id === source.id);
      if (stored === undefined || isAhead(stored, now)) continue;
      try {
        await this.#adoptSource(source, stored);
      } catch (error) {
        if (!(error instanceof ExitListRefused)) throw error;
        refused.push([source, error]);
      }
    }
    const own = new Set(this.#sources.map(({ id }) => id));
    this.#foreign = record.sources.filter(({ id }) => !own.has(id));
    return refused;
  }

  /** The lists that are of this moment or later, in the order of the sources. */
  youngerThan(moment: number): SourceList[] {
    return this.#sources
      .map((source) => this.stateOf(source).list)
      .filter((list) => list !== null)
      .filter((list) => expiresSince(list) >= moment);
  }

  /** Everything that is known, to be kept. */
  toRecord(now: number, joined: { readonly digest: string | null; readonly size: number }): ExitListRecord {
    const own = this.#sources.flatMap((source): StoredSource[] => {
      const { attemptedAt, failures, problem, list } = this.stateOf(source);
      if (attemptedAt === null) return [];
      const stored = list === null ? null : { ...list, addresses: list.addresses.map(({ text }) => text) };
      return [{ id: source.id, source: source.name, attemptedAt, failures, problem, list: stored }];
    });
    const foreign = this.#foreign.filter(({ attemptedAt }) => now - Date.parse(attemptedAt) < foreignMilliseconds);
    const { digest, size } = joined;
    const time = new Date(now).toISOString();
    return { version: 1, digest, size, time, sources: [...own, ...foreign.slice(0, 32)] };
  }

  #put(source: ExitSource, state: SourceState): void {
    this.#states.set(source.id, state);
    this.#revision += 1;
  }

  async #adoptSource(source: ExitSource, stored: StoredSource): Promise<void> {
    const before = this.stateOf(source);
    if ('file' in source.location && before.list !== null) return;
    const { attemptedAt, failures, problem, list } = stored;
    const newer = list !== null && list.confirmedAt > (before.list?.confirmedAt ?? '');
    const kept = newer ? await this.#admit(list, before.list) : before.list;
    const attempt = attemptedAt > (before.attemptedAt ?? '') ? { attemptedAt, failures, problem } : before;
    if (newer) this.#put(source, { ...attempt, list: kept });
    else this.#states.set(source.id, { ...attempt, list: kept });
  }

  /** A list from a record keeps to the same rules as one from its source, and to its own digest. */
  async #admit(list: NonNullable<StoredSource['list']>, before: SourceList | null): Promise<SourceList> {
    if (list.digest === before?.digest) return { ...before, ...list, addresses: before.addresses };
    const { addresses, digest } = await admitExits(addressesOf(list.addresses), this.#rules);
    if (digest === list.digest) return { ...list, addresses };
    throw new ExitListRefused('malformed', 'its record does not have the digest that it says');
  }
}

function* addressesOf(texts: readonly string[]): Generator<IpAddress> {
  for (const text of texts) {
    const address = parseIpAddress(text);
    if (address === null) throw new ExitListRefused('malformed', 'its record holds an address that is none');
    yield address;
  }
}

function isAhead({ attemptedAt, list }: StoredSource, now: number): boolean {
  return [attemptedAt, list?.confirmedAt ?? attemptedAt].some(
    (moment) => Date.parse(moment) > now + clockToleranceMilliseconds,
  );
}
