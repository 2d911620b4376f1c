import type { Credential } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import type { Eventual } from './eventual.js';
import type { CompiledKey, CompiledMerchant, RecordProblem } from './records.js';

/** How a record came to be known: just asked for, held and known to be true, or held while nothing can be heard. */
export type RecordSource = 'store' | 'cache' | 'stale';

/** What a key store answers: a credential or, where the key is unknown, null; and how true that is. */
export interface KeyAnswer {
  readonly credential: Credential | null;
  readonly source: RecordSource;
  /** Time since the answer was last known to be true, in milliseconds. */
  readonly ageMilliseconds: number;
}

/**
 * Finds credentials by look-up id. There are three answers and they never become two: found, absent (null), and could
 * not ask, which is a `KeyStoreUnavailable`, thrown or as a rejection. An outage must never look like a bad key.
 */
export interface KeyStore {
  /**
   * @param lookupId hex SHA-256 of the whole key, or its HMAC with the pepper
   * @throws KeyStoreUnavailable when nothing can be said about this key now
   */
  find(lookupId: string): Eventual<KeyAnswer>;
  /**
   * Whether a question about a key is no guess at the store's cost: its answer is in memory, or the key is known to exist. Left out:
   * that is known of no key.
   */
  knows?(lookupId: string): boolean;
  /** Why nothing can be asked at all, in words for an operator; null while it can. */
  unavailableReason(): string | null;
  /** Why no traffic should come yet, though what is asked is answered; null where it may, as it may where there is no such thing. */
  startingReason?(): string | null;
  close(): Promise<void>;
}

/** One record as it was read. */
export interface RecordRead<Compiled> {
  /** null: there is no such record. */
  readonly record: Compiled | null;
  readonly source: RecordSource;
  readonly ageMilliseconds: number;
}

/** The records that credentials are joined from, wherever they are kept. Both fail with `KeyStoreUnavailable`. */
export interface Records {
  key(lookupId: string): Eventual<RecordRead<CompiledKey>>;
  merchant(merchantId: string): Eventual<RecordRead<CompiledMerchant>>;
  /** As `KeyStore.knows`. */
  knowsKey(lookupId: string): boolean;
  /** Why nothing can be asked at all, in words for an operator; null while it can. */
  unavailableReason(): string | null;
  /** Why no traffic should come yet, though what is asked is answered; null where it may, as it may where there is no such thing. */
  startingReason?(): string | null;
  /** What is held in memory, and what could not be used; null where records are kept nowhere else. */
  cacheFigures(): RecordFigures | null;
  close(): Promise<void>;
}

/** The records of a store in figures. */
export interface RecordFigures extends CacheFigures {
  /** How often one was read that could not be used, by what was wrong with it. */
  readonly refused: Readonly<Record<RecordProblem, number>>;
}

/** A cache of records in figures: of those that are known, and of names that are known to have none. */
export interface CacheFigures {
  readonly known: HeldFigures;
  readonly unknown: HeldFigures;
  /** Null: nothing is read before it is asked for. */
  readonly preload: PreloadFigures | null;
}

/** How far the records have been read that nobody has asked for yet. */
export interface PreloadFigures {
  /** `full`: not every record fits. `refused`: the store does not let them be read. */
  readonly state: PreloadState;
  readonly keys: number;
  readonly merchants: number;
  /** Keys of all environments that the newest look at the whole store came upon, so far. */
  readonly seen: number;
}

export const preloadStates = ['loading', 'complete', 'full', 'refused'] as const;
export type PreloadState = (typeof preloadStates)[number];

/** One half of a cache. */
export interface HeldFigures {
  readonly entries: number;
  /** How many had to go since the start because there was no room, though they were young enough. */
  readonly evictions: number;
}

/** The key store could not be asked. The message is for operators and names no key. */
export class KeyStoreUnavailable extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'KeyStoreUnavailable';
  }
}

/** What became of a request that was counted: whether there was a token for it, and how many are left, with fractions. */
export interface TokenTake {
  readonly taken: boolean;
  readonly tokens: number;
}

/** Counts the requests of merchants for all gateways together. */
export interface SharedRate {
  /** Takes a token of a merchant. Null, at once or in bounded time, where that cannot be done; it never fails. */
  take(merchantId: string): Eventual<TokenTake | null>;
  close(): Promise<void>;
}

/** The known Tor exits. */
export interface TorExits {
  /** Whether an address is one; null where there is no list that could tell, and the configuration denies then. */
  has(address: IpAddress): boolean | null;
  /** SHA-256, in hex, of the list that is asked; null where there is none. */
  readonly digest: string | null;
  /** Why requests cannot be judged, in words for an operator; null while they can. */
  unavailableReason(): string | null;
  /** Why the list that is asked should be replaced, in words for an operator; null while nothing is wrong with it. */
  ageWarning?(): string | null;
  /** What operators should know of the list. */
  status(): TorListStatus;
  close(): Promise<void>;
}

/** The list of Tor exits as health checks, metrics and `tor-exits status` show it. */
export interface TorListStatus {
  /** Whether there is a list that is young enough. */
  readonly available: boolean;
  readonly digest: string | null;
  readonly size: number;
  /** Age of the youngest source's list, by its own date or, if it has none, since it was confirmed; null: there never was one. */
  readonly ageSeconds: number | null;
  readonly sources: readonly TorSourceStatus[];
}

/** One source of the list. */
export interface TorSourceStatus {
  /** Its URL, without what could be secret in it, or its path. */
  readonly source: string;
  /** When it was last read, or said that nothing had changed (ISO 8601); null: never. */
  readonly confirmedAt: string | null;
  /** Its list's own date (ISO 8601): the newest in it, or what its server or its file tells; null: nobody tells. */
  readonly datedAt: string | null;
  readonly datedBy: 'list' | 'server' | 'file' | null;
  readonly ageSeconds: number | null;
  readonly size: number;
  /** Addresses left out because they are private, loopback, for documentation or otherwise reserved. */
  readonly leftOut: number;
  /** Why the newest attempt to read it failed; null where it did not. */
  readonly problem: string | null;
  /** Attempts of this process that failed or were refused, by reason. */
  readonly refusals: Readonly<Record<string, number>>;
}

/** Where an address is, as far as databases tell. */
export interface Whereabouts {
  /** ISO 3166-1 alpha-2; null: not known. */
  readonly countryIsoCode: string | null;
  /** Number of the autonomous system; null: not known. */
  readonly asNumber: number | null;
}

/** Databases about addresses. */
export interface GeoIp {
  whereabouts(address: IpAddress): Whereabouts;
  /** Whether the database of anonymous addresses says that this, or the IPv4 address in it, is a Tor exit; null where it cannot be asked. */
  isTorExit(address: IpAddress): boolean | null;
  close(): void;
}

/** Proves to upstreams whom the gateway let in. */
export interface CallerIdentity {
  /** The value of `x-gateway-assertion`: a signed JWT about the merchant, its key and its environment, for one upstream. */
  assertionFor(credential: Credential, upstreamName: string): Promise<string>;
  /** The JSON Web Key Set by which upstreams check it; public keys alone. */
  readonly publicKeys: object;
}

/** What a trace says of a request's way through the gateway. */
export interface Span {
  /** 32 hex digits. */
  readonly traceId: string;
  /** 16 hex digits, as are those of the parent; null where the caller named none. */
  readonly spanId: string;
  readonly parentId: string | null;
  readonly name: string;
  /** Milliseconds since 1970, and from then on. */
  readonly startedAt: number;
  readonly duration: number;
  /** Whether the gateway or its upstream failed. */
  readonly failed: boolean;
  readonly attributes: Readonly<Record<string, string | number>>;
}

/** Takes spans to where traces are kept. Nobody waits for that, and a request never depends on it. */
export interface TraceExport {
  /** Whether the next request's span is to be taken; no caller has a say in that. */
  sample(): boolean;
  take(span: Span): void;
  /** Spans since the start by what became of them. */
  figures(): { readonly exported: number; readonly dropped: number };
  /** Takes what is left within the time. */
  close(timeoutMilliseconds: number): Promise<void>;
}

/** The time, in milliseconds since 1970. */
export interface Clock {
  now(): number;
}
