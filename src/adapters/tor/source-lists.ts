import { type IpAddress, parseIpAddress } from '../../policy/ip-address.js';
import Type, { Compile, type Static } from '../../typebox/typebox.js';
import { ExitListRejected, type ExitSource, expiryStart, type ListDate, type Validators } from './exit-source.js';
import { type AdmissionRules, admitExits, type AdmittedExits, maxExits, rejectShrunken } from './tor-exit-list.js';

/** The last valid list of a source (a URL or a file). */
export interface SourceList extends AdmittedExits, Validators, Partial<ListDate> {
  /** When the source last returned this list or reported it as unchanged (ISO 8601, UTC). */
  readonly confirmedAt: string;
}

/** The list of a source, and the results of the last attempts to read this source. */
export interface SourceState {
  /** When the source was last read, successfully or not; null if it never was. */
  readonly attemptedAt: string | null;
  /** Number of consecutive failed attempts. */
  readonly failures: number;
  /** Why the last attempt failed; null after a success. */
  readonly problem: string | null;
  readonly list: SourceList | null;
}

const unread: SourceState = { attemptedAt: null, failures: 0, problem: null, list: null };
/**
 * Tolerated difference between the clocks of machines. A stored list is ignored if its times are further in the future
 * than this tolerance, because the list would expire too late.
 */
const clockToleranceMilliseconds = 5 * 60_000;
/**
 * How long the stored record keeps the list of a source that only other gateways read. While a configuration change is
 * rolled out, gateways have different sources. Without this time, gateways would remove each other's lists.
 */
const foreignMilliseconds = 24 * 3_600_000;

/** The last valid list of each source. If a source fails, its list stays, and the other sources are not affected. */
export class SourceLists {
  readonly #sources: readonly ExitSource[];
  readonly #rules: AdmissionRules;
  readonly #states = new Map<string, SourceState>();
  /** The digest of the list that an operator accepted, by source id. Deleted when the source has a different list. */
  readonly #accepted = new Map<string, string>();
  #foreign: readonly StoredSource[] = [];
  #revision = 0;

  constructor(sources: readonly ExitSource[], rules: AdmissionRules) {
    this.#sources = sources;
    this.#rules = rules;
  }

  /**
   * A number that is incremented when a list changes or its source confirms it, so that the snapshot file is written
   * again.
   */
  get revision(): number {
    return this.#revision;
  }

  stateOf({ id }: ExitSource): SourceState {
    return this.#states.get(id) ?? unread;
  }

  /** Whether an operator accepted the list with this digest, in this process or in another one. */
  isAccepted({ id }: ExitSource, digest: string): boolean {
    return this.#accepted.get(id) === digest;
  }

  /** Records that an operator accepted the list with this digest, even if it is much smaller than the previous list. */
  accept({ id }: ExitSource, digest: string): void {
    this.#accepted.set(id, digest);
  }

  /** Stores the list that a source returned. */
  keep(source: ExitSource, list: SourceList): void {
    this.#put(source, { attemptedAt: list.confirmedAt, failures: 0, problem: null, list });
  }

  /** Records that the source reported its list as unchanged. */
  confirm(source: ExitSource, at: string): void {
    const { list } = this.stateOf(source);
    if (list !== null) this.keep(source, { ...list, confirmedAt: at });
  }

  /** Records that a source could not be read, or that its list was rejected. The previous list stays. */
  fail(source: ExitSource, at: string, problem: string): void {
    const { failures, list } = this.stateOf(source);
    this.#states.set(source.id, { attemptedAt: at, failures: failures + 1, problem, list });
  }

  /**
   * Adopts newer lists from a record that is stored in Redis or in the snapshot file. A list that is much smaller than
   * this process's own is adopted only after an operator's acceptance (see `isAccepted`). That another process stored and
   * uses a list is no acceptance, because a process without a previous list uses a list of any size. The list of a local
   * file is adopted only while this process has no list of that file. Afterwards, the file itself takes precedence, and
   * only an operator's acceptance is adopted.
   * @returns the sources whose list in the record was rejected, with the reason; their previous lists stay
   */
  async adopt(record: ExitListRecord, now: number): Promise<(readonly [ExitSource, ExitListRejected])[]> {
    const refused: (readonly [ExitSource, ExitListRejected])[] = [];
    for (const source of this.#sources) {
      const stored = record.sources.find(({ id }) => id === source.id);
      if (stored === undefined || isAhead(stored, now)) continue;
      try {
        await this.#adoptSource(source, stored);
      } catch (error) {
        if (!(error instanceof ExitListRejected)) throw error;
        refused.push([source, error]);
      }
    }
    const own = new Set(this.#sources.map(({ id }) => id));
    this.#foreign = record.sources.filter(({ id }) => !own.has(id));
    return refused;
  }

  /**
   * Returns the lists whose age counts from `timestamp` or later, in the order of the sources. See `expiryStart`.
   * @param timestamp in milliseconds since 1970
   */
  youngerThan(timestamp: number): SourceList[] {
    return this.#sources
      .map((source) => this.stateOf(source).list)
      .filter((list) => list !== null)
      .filter((list) => expiryStart(list) >= timestamp);
  }

  /** Builds a record of all lists and states, to be stored. */
  toRecord(now: number, joined: { readonly digest: string | null; readonly size: number }): ExitListRecord {
    const own = this.#sources.flatMap((source): StoredSource[] => {
      const { attemptedAt, failures, problem, list } = this.stateOf(source);
      if (attemptedAt === null) return [];
      const stored = list && {
        ...list,
        addresses: list.addresses.map(({ text }) => text),
        accepted: this.isAccepted(source, list.digest),
      };
      return [{ id: source.id, source: source.name, attemptedAt, failures, problem, list: stored }];
    });
    const foreign = this.#foreign.filter(({ attemptedAt }) => now - Date.parse(attemptedAt) < foreignMilliseconds);
    const { digest, size } = joined;
    const time = new Date(now).toISOString();
    return { version: 1, digest, size, time, sources: [...own, ...foreign.slice(0, 32)] };
  }

  #put(source: ExitSource, state: SourceState): void {
    const digest = state.list?.digest ?? '';
    const isOther = digest !== this.stateOf(source).list?.digest;
    if (isOther && !this.isAccepted(source, digest)) this.#accepted.delete(source.id);
    this.#states.set(source.id, state);
    this.#revision += 1;
  }

  async #adoptSource(source: ExitSource, stored: StoredSource): Promise<void> {
    const before = this.stateOf(source);
    const { attemptedAt, failures, problem, list } = stored;
    const newer = list !== null && list.confirmedAt > (before.list?.confirmedAt ?? '');
    const isAccepted = list?.accepted === true && (newer || list.digest === before.list?.digest);
    if (isAccepted) this.accept(source, list.digest);
    if ('file' in source.location && before.list !== null) {
      // Read the accepted file again soon: after many failures, the delay until the next attempt would be long.
      if (isAccepted) this.#states.set(source.id, { ...before, failures: Math.min(before.failures, 1) });
      return;
    }
    const kept = newer ? await this.#admit(source, list, before.list) : before.list;
    const attempt = attemptedAt > (before.attemptedAt ?? '') ? { attemptedAt, failures, problem } : before;
    if (newer) this.#put(source, { ...attempt, list: kept });
    else this.#states.set(source.id, { ...attempt, list: kept });
  }

  /** Checks and returns a list of a stored record. Its digest must match, and the rules for fetched lists apply. */
  async #admit(
    source: ExitSource,
    list: NonNullable<StoredSource['list']>,
    before: SourceList | null,
  ): Promise<SourceList> {
    if (list.digest === before?.digest) return { ...before, ...list, addresses: before.addresses };
    const { addresses, digest } = await admitExits(addressesOf(list.addresses), this.#rules);
    if (digest !== list.digest) throw new ExitListRejected('malformed', 'the stored list does not match its digest');
    if (!this.isAccepted(source, digest)) rejectShrunken(addresses.length, before?.addresses.length ?? 0);
    return { ...list, addresses };
  }
}

function* addressesOf(texts: readonly string[]): Generator<IpAddress> {
  for (const text of texts) {
    const address = parseIpAddress(text);
    if (address === null) throw new ExitListRejected('malformed', 'the stored list has an invalid address');
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
  /** When the source last returned this list or reported it as unchanged. */
  confirmedAt: moment,
  /** The list's date; null if unknown. A record of the previous release has neither `datedAt` nor `datedBy`. */
  datedAt: Type.Optional(Type.Union([moment, Type.Null()])),
  datedBy: Type.Optional(Type.Union([Type.Literal('list'), Type.Literal('server'), Type.Literal('file'), Type.Null()])),
  etag: validator,
  lastModified: validator,
  leftOut: Type.Integer({ minimum: 0 }),
  /** SHA-256 of the addresses in their order, each followed by a line feed. */
  digest,
  /**
   * Whether an operator accepted this list, even if it is much smaller than the previous list. The previous release
   * does not write this member, and ignores it.
   */
  accepted: Type.Optional(Type.Boolean()),
  addresses: Type.Array(Type.String({ maxLength: 45 }), { minItems: 1, maxItems: maxExits }),
});

const storedSource = Type.Object({
  id: Type.String({ pattern: '^[0-9a-f]{32}$' }),
  source: Type.String({ maxLength: 4096 }),
  /** When the source was last read, successfully or not. */
  attemptedAt: moment,
  /** Number of consecutive failed attempts. */
  failures: Type.Integer({ minimum: 0, maximum: 1_000_000 }),
  problem: Type.Union([Type.String({ maxLength: 4096 }), Type.Null()]),
  /** The last valid list; null before the first valid list. */
  list: Type.Union([storedList, Type.Null()]),
});

const record = Type.Object({
  version: Type.Literal(1),
  digest: Type.Union([digest, Type.Null()]),
  size: Type.Integer({ minimum: 0 }),
  time: moment,
  sources: Type.Array(storedSource, { maxItems: 128 }),
});

/** The list and state of a source, as stored. */
type StoredSource = Static<typeof storedSource>;

/** The record in the key store and in the snapshot file: the last valid list and the state of each source. */
type ExitListRecord = Static<typeof record>;

const recordForm = Compile(record);
/** Maximum length of a record in characters. It leaves room for more than three million IPv4 addresses. */
const maxRecordLength = 64 * 1024 * 1024;

/** Thrown if a text is not a valid record of Tor exit lists. */
class InvalidExitListRecord extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'InvalidExitListRecord';
  }
}

/**
 * Parses a stored record.
 * @throws InvalidExitListRecord; its message quotes nothing of the text
 */
export function parseExitListRecord(text: string): ExitListRecord {
  if (text.length > maxRecordLength) throw new InvalidExitListRecord('the record is too long');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidExitListRecord('the record is not JSON');
  }
  if (recordForm.Check(value)) return value;
  throw new InvalidExitListRecord('the record is not a Tor exit list of version 1');
}

/** The store in which one gateway publishes the lists that it fetched for all gateways. */
export interface SharedExitLists {
  /**
   * Reads the current record; null if it does not exist.
   * @throws Error if the store is unavailable
   */
  read(): Promise<string | null>;
  /**
   * Claims the exclusive right to fetch; null if another process has it.
   * @throws Error if the store is unavailable
   */
  claim(): Promise<FetchClaim | null>;
  close(): Promise<void>;
}

/**
 * The exclusive right to fetch for all gateways. The process that holds the right renews it until `release`. If that
 * process crashes, the renewals stop and the right expires.
 */
export interface FetchClaim {
  /** Writes the record. Returns false if the right to fetch was lost: another process could then be fetching. */
  publish(record: string): Promise<boolean>;
  release(): Promise<void>;
}
