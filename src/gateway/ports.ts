import type { Credential } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import type { Eventual } from './eventual.js';
import type { CompiledKey, CompiledMerchant, RecordProblem } from './records.js';

/**
 * Source of a record: just read from the store (`store`), cached and known to be current (`cache`), or cached while no
 * notices of changes arrive (`stale`).
 */
export type RecordSource = 'store' | 'cache' | 'stale';

/** Result of a key look-up: the credential, or null for an unknown key, with its source and age. */
export interface KeyLookup {
  readonly credential: Credential | null;
  readonly source: RecordSource;
  /** Milliseconds since the result was last known to be current. */
  readonly ageMilliseconds: number;
}

/**
 * Finds credentials by look-up id. A look-up has three distinct results: found, absent (null), and failed, which throws
 * or rejects with `KeyStoreUnavailable`. An outage must never look like a bad key.
 */
export interface KeyStore {
  /**
   * @param lookupId hex SHA-256 of the whole key, or its HMAC with the pepper
   * @throws KeyStoreUnavailable if the key cannot be looked up now
   */
  find(lookupId: string): Eventual<KeyLookup>;
  /**
   * Whether a look-up needs no protection against guessing: its result is in memory, or the key is known to exist.
   * Absent: unknown for every key.
   */
  knows?(lookupId: string): boolean;
  /** Why the key store is unavailable, for operators; null if it is available. */
  unavailableReason(): string | null;
  /**
   * Why the gateway should get no traffic yet although look-ups work; null if it may, as for stores without a start
   * phase.
   */
  startingReason?(): string | null;
  close(): Promise<void>;
}

/** Result of reading one record. */
export interface RecordRead<Compiled> {
  /** Null: no such record. */
  readonly record: Compiled | null;
  readonly source: RecordSource;
  readonly ageMilliseconds: number;
}

/**
 * The records from which credentials are joined, for any kind of store. Both look-ups fail with `KeyStoreUnavailable`.
 */
export interface Records {
  key(lookupId: string): Eventual<RecordRead<CompiledKey>>;
  merchant(merchantId: string): Eventual<RecordRead<CompiledMerchant>>;
  /** Same meaning as `KeyStore.knows`. */
  knowsKey(lookupId: string): boolean;
  /** Why the records are unavailable, for operators; null if they are available. */
  unavailableReason(): string | null;
  /** Same meaning as `KeyStore.startingReason`. */
  startingReason?(): string | null;
  /** Statistics of the cache and of invalid records; null for records that exist only in memory. */
  recordStats(): RecordStats | null;
  close(): Promise<void>;
}

/** Statistics of a record store. */
export interface RecordStats extends CacheStats {
  /** Number of reads of an unusable record, by problem. */
  readonly refused: Readonly<Record<RecordProblem, number>>;
}

/** Statistics of a record cache: `known` counts existing records, `unknown` counts names without a record. */
export interface CacheStats {
  readonly known: CachePartStats;
  readonly unknown: CachePartStats;
  /** Null: no preload. */
  readonly preload: PreloadStats | null;
}

/** Progress of the preload, which reads records before any request needs them. */
export interface PreloadStats {
  /** `full`: the cache cannot hold every record. `failureOf`: the store forbids listing its records. */
  readonly state: PreloadState;
  readonly keys: number;
  readonly merchants: number;
  /** Keys of all environments that the current or last scan of the store has found so far. */
  readonly seen: number;
}

export const preloadStates = ['loading', 'complete', 'full', 'refused'] as const;
export type PreloadState = (typeof preloadStates)[number];

/** Statistics of one part of a cache. */
export interface CachePartStats {
  readonly entries: number;
  /** Entries evicted since the start for lack of space before they expired. */
  readonly evictions: number;
}

/** The key store is unavailable. The message is for operators and contains no key. */
export class KeyStoreUnavailable extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'KeyStoreUnavailable';
  }
}

/** Result of taking a token: whether one was available, and how many remain (fractional). */
export interface TokenTake {
  readonly taken: boolean;
  readonly tokens: number;
}

/** Token buckets per merchant, shared by all gateways. */
export interface SharedRate {
  /**
   * Takes a token of a merchant. Returns null, immediately or within a timeout, if the shared count is unavailable;
   * never fails.
   */
  take(merchantId: string): Eventual<TokenTake | null>;
  close(): Promise<void>;
}

/** The known Tor exit addresses. */
export interface TorExits {
  /** Whether an address is a Tor exit; null if no usable list exists and the configuration denies in that case. */
  has(address: IpAddress): boolean | null;
  /** SHA-256 of the current list in hex; null without a list. */
  readonly digest: string | null;
  /** Why requests cannot be decided, for operators; null if they can. */
  unavailableReason(): string | null;
  /** Why the current list should be replaced, for operators; null if it is current. */
  ageWarning?(): string | null;
  /** Status of the list for operators. */
  status(): TorListStatus;
  close(): Promise<void>;
}

/** Status of the Tor exit list for health checks, metrics and `tor-exits status`. */
export interface TorListStatus {
  /** Whether a list exists that is not too old. */
  readonly available: boolean;
  readonly digest: string | null;
  readonly size: number;
  /**
   * Age in seconds of the newest source's list, by its own date or, without a date, since its last confirmation. Null:
   * never read.
   */
  readonly ageSeconds: number | null;
  readonly sources: readonly TorSourceStatus[];
}

/** Status of one source of the list. */
export interface TorSourceStatus {
  /** Its URL without parts that may be secret, or its file path. */
  readonly source: string;
  /** When the source was last read or reported no change (ISO 8601); null: never. */
  readonly confirmedAt: string | null;
  /**
   * Date of its list (ISO 8601): the newest date in the list, or the server's or file's modification date; null:
   * unknown.
   */
  readonly datedAt: string | null;
  readonly datedBy: 'list' | 'server' | 'file' | null;
  readonly ageSeconds: number | null;
  readonly size: number;
  /** Addresses skipped because they are private, loopback, documentation or otherwise reserved. */
  readonly leftOut: number;
  /** Why the last attempt to read the source failed; null if it succeeded. */
  readonly problem: string | null;
  /** Failed or rejected attempts of this process, by reason. */
  readonly refusals: Readonly<Record<string, number>>;
}

/** Location of an address according to the GeoIP databases. */
export interface GeoLocation {
  /** ISO 3166-1 alpha-2; null: unknown. */
  readonly countryIsoCode: string | null;
  /** Number of the autonomous system; null: unknown. */
  readonly asNumber: number | null;
}

/** GeoIP databases. */
export interface GeoIp {
  locate(address: IpAddress): GeoLocation;
  /**
   * Whether the anonymous IP database lists the address, or its embedded IPv4 address, as a Tor exit; null if
   * unavailable.
   */
  isTorExit(address: IpAddress): boolean | null;
  close(): void;
}

/** Proves the caller's identity to upstreams. */
export interface CallerIdentity {
  /**
   * Returns the value of `x-gateway-assertion`: a JWT about the merchant, its key and its environment, signed for one
   * upstream.
   */
  assertionFor(credential: Credential, upstreamName: string): Promise<string>;
  /** JSON Web Key Set with which upstreams verify assertions; contains only public keys. */
  readonly publicKeys: object;
}

/** The gateway's span of a request in a trace. */
export interface Span {
  /** 32 hex digits. */
  readonly traceId: string;
  /** 16 hex digits, like `parentId`, which is null without a caller's span. */
  readonly spanId: string;
  readonly parentId: string | null;
  readonly name: string;
  /** Start in milliseconds since 1970; `duration` is in milliseconds. */
  readonly startedAt: number;
  readonly duration: number;
  /** Whether the gateway or its upstream failed. */
  readonly failed: boolean;
  readonly attributes: Readonly<Record<string, string | number>>;
}

/** Exports spans to a trace store. Requests neither wait for the export nor depend on it. */
export interface TraceExport {
  /** Whether to export the next request's span; the caller's sampling flag is ignored. */
  sample(): boolean;
  take(span: Span): void;
  /** Number of spans exported and dropped since the start. */
  stats(): { readonly exported: number; readonly dropped: number };
  /** Exports the remaining spans within the timeout. */
  close(timeoutMilliseconds: number): Promise<void>;
}

/** The time, in milliseconds since 1970. */
export interface Clock {
  now(): number;
}
