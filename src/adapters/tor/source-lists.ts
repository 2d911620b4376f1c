import { type IpAddress, parseIpAddress } from '../../policy/ip-address.js';
import Type, { Compile, type Static } from '../../typebox/typebox.js';
import { ExitListRefused, type ExitSource, expiresSince, type ListDate, type Validators } from './exit-source.js';
import { type AdmissionRules, admitExits, type AdmittedExits, maxExits } from './tor-exit-list.js';

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

const moment = Type.String({ pattern: '^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}\\.\\d{3}Z$' });
const validator = Type.Union([Type.String({ maxLength: 256 }), Type.Null()]);
const digest = Type.String({ pattern: '^[0-9a-f]{64}$' });

const storedList = Type.Object({
  /** When its source last had it, or said that it still has. */
  confirmedAt: moment,
  /** The list's own date; null where it has none. The former release knows neither of the two. */
  datedAt: Type.Optional(Type.Union([moment, Type.Null()])),
  datedBy: Type.Optional(Type.Union([Type.Literal('list'), Type.Literal('server'), Type.Literal('file'), Type.Null()])),
  etag: validator,
  lastModified: validator,
  leftOut: Type.Integer({ minimum: 0 }),
  /** SHA-256 of the addresses in their order, a line each. */
  digest,
  addresses: Type.Array(Type.String({ maxLength: 45 }), { minItems: 1, maxItems: maxExits }),
});

const storedSource = Type.Object({
  id: Type.String({ pattern: '^[0-9a-f]{32}$' }),
  source: Type.String({ maxLength: 4096 }),
  /** When it was last read, with success or without. */
  attemptedAt: moment,
  /** Attempts in a row that failed. */
  failures: Type.Integer({ minimum: 0, maximum: 1_000_000 }),
  problem: Type.Union([Type.String({ maxLength: 4096 }), Type.Null()]),
  /** The last good list; null: there never was one. */
  list: Type.Union([storedList, Type.Null()]),
});

const record = Type.Object({
  version: Type.Literal(1),
  digest: Type.Union([digest, Type.Null()]),
  size: Type.Integer({ minimum: 0 }),
  time: moment,
  sources: Type.Array(storedSource, { maxItems: 128 }),
});

/** A source as it stands in a record. */
type StoredSource = Static<typeof storedSource>;

/** The list of Tor exits as it is kept in the key store and on disk: each source's last good one, and how that was had. */
type ExitListRecord = Static<typeof record>;

const recordForm = Compile(record);
/** Enough for a full list of a full set of sources; a longer text is no record of ours. */
const maxRecordLength = 64 * 1024 * 1024;

/** A text that is no record of the list of Tor exits. */
class InvalidExitListRecord extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'InvalidExitListRecord';
  }
}

/** @throws an error that says what is wrong with it, and quotes nothing of it */
export function parseExitListRecord(text: string): ExitListRecord {
  if (text.length > maxRecordLength) throw new InvalidExitListRecord('it is too long');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidExitListRecord('it is not JSON');
  }
  if (recordForm.Check(value)) return value;
  throw new InvalidExitListRecord('it is no record of a list of Tor exits in version 1');
}

/** Where the gateways of a cluster share what one of them has fetched for all. */
export interface SharedExitLists {
  /**
   * The record as it stands; null: there is none.
   * @throws where nothing can be asked now
   */
  read(): Promise<string | null>;
  /**
   * Makes this process the one that fetches; null where another one is.
   * @throws where nothing can be asked now
   */
  claim(): Promise<FetchClaim | null>;
  close(): Promise<void>;
}

/** The right to fetch for all. It is prolonged while it is held, and ends by itself when its process does. */
export interface FetchClaim {
  /** Writes the record; false where the claim was lost meanwhile, and another process fetches. */
  publish(record: string): Promise<boolean>;
  release(): Promise<void>;
}
