import type { Credential } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import type { Eventual } from './eventual.js';
import type { CompiledKey, CompiledMerchant, RecordProblem } from './records.js';

/**
 * Where a record was read: from the store (`store`), from the cache while it is known to be current (`cache`), or from
 * the cache while no notices of changes arrive (`stale`).
 */
export type RecordSource = 'store' | 'cache' | 'stale';

/** The result of a key look-up. The credential is null if the store does not contain the key. */
export interface KeyLookup {
  readonly credential: Credential | null;
  readonly source: RecordSource;
  /** Milliseconds since the result was last known to be current. */
  readonly ageMilliseconds: number;
}

/**
 * Finds credentials by look-up id. A look-up finds the key, finds that it does not exist (null), or fails with
 * `KeyStoreUnavailable`. An outage is an error and never null, because the client would otherwise get a 401 for a valid
 * key.
 */
export interface KeyStore {
  /**
   * @param lookupId the hex SHA-256 of the whole key, or its HMAC with the pepper
   * @throws KeyStoreUnavailable if the key cannot be looked up now
   */
  find(lookupId: string): Eventual<KeyLookup>;
  /**
   * Whether the result of a look-up is in memory or the key is known to exist. Other look-ups are rate-limited, because
   * a client may be guessing keys. If the method is absent, every look-up counts as unknown.
   */
  knows?(lookupId: string): boolean;
  /** Returns why the key store is unavailable, for operators; null if it is available. */
  unavailableReason(): string | null;
  /**
   * Returns why the gateway is not ready for traffic yet although look-ups work; null if it is ready. Absent for stores
   * that need no time to start.
   */
  startingReason?(): string | null;
  close(): Promise<void>;
}

/** The result of reading one record. */
export interface RecordRead<Compiled> {
  /** Null if the record does not exist. */
  readonly record: Compiled | null;
  readonly source: RecordSource;
  readonly ageMilliseconds: number;
}

/**
 * Reads the records of keys and merchants from any kind of store. Both look-ups fail with `KeyStoreUnavailable` during
 * an outage.
 */
export interface Records {
  key(lookupId: string): Eventual<RecordRead<CompiledKey>>;
  merchant(merchantId: string): Eventual<RecordRead<CompiledMerchant>>;
  /** Whether the result for this key is in memory or the key is known to exist. */
  knowsKey(lookupId: string): boolean;
  /** Returns why the records are unavailable, for operators; null if they are available. */
  unavailableReason(): string | null;
  /** Returns why the gateway is not ready for traffic yet although look-ups work; null if it is ready. */
  startingReason?(): string | null;
  /** Returns statistics of the cache and of invalid records; null if all records are in memory, without a cache. */
  recordStats(): RecordStats | null;
  close(): Promise<void>;
}

/** Statistics of a record store. */
export interface RecordStats extends CacheStats {
  /** How many reads found an unusable record, by problem. */
  readonly refused: Readonly<Record<RecordProblem, number>>;
}

/** Statistics of a record cache. `known` counts existing records; `unknown` counts cached names that have no record. */
export interface CacheStats {
  readonly known: CachePartStats;
  readonly unknown: CachePartStats;
  /** Null if the cache is not preloaded. */
  readonly preload: PreloadStats | null;
}

/** Progress of the preload, which fills the cache with records before requests need them. */
export interface PreloadStats {
  /** `full` means that the cache cannot hold every record. `refused` means that Redis denies the preload by its ACL. */
  readonly state: PreloadState;
  readonly keys: number;
  readonly merchants: number;
  /** How many keys, of all environments, the current or last scan of the store has found so far. */
  readonly seen: number;
}

export const preloadStates = ['loading', 'complete', 'full', 'refused'] as const;
export type PreloadState = (typeof preloadStates)[number];

/** Statistics of the existing or the non-existing records in a cache. */
export interface CachePartStats {
  readonly entries: number;
  /** Entries evicted before their expiry because the cache was full, since the process started. */
  readonly evictions: number;
}

/** The key store is unavailable. The message is for operators and contains no API key. */
export class KeyStoreUnavailable extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'KeyStoreUnavailable';
  }
}

/** Whether a token was taken from a token bucket, and how many tokens remain (may be a fraction). */
export interface TokenTake {
  readonly taken: boolean;
  readonly tokens: number;
}

/** A rate limit per merchant, as token buckets that all gateways share. */
export interface SharedRate {
  /**
   * Takes a token from the bucket of a merchant. Returns null if the shared bucket is unavailable, at once or after a
   * timeout. Never throws or rejects.
   */
  take(merchantId: string): Eventual<TokenTake | null>;
  close(): Promise<void>;
}

/** The list of Tor exit addresses. */
export interface TorExits {
  /**
   * Whether an address is a Tor exit. Null if there is no usable list and the configuration denies requests in that
   * case.
   */
  has(address: IpAddress): boolean | null;
  /** SHA-256 of the current list in hex; null if there is no list. */
  readonly digest: string | null;
  /** Returns why requests cannot be checked against the list, for operators; null if they can. */
  unavailableReason(): string | null;
  /** Returns why the list of Tor exits is too old, for operators; null if it is current. */
  ageWarning?(): string | null;
  /** Returns the status of the list, for operators. */
  status(): TorListStatus;
  close(): Promise<void>;
}

/** Status of the Tor exit list for health checks, metrics and `tor-exits status`. */
export interface TorListStatus {
  /** Whether there is a list that is not too old. */
  readonly available: boolean;
  readonly digest: string | null;
  readonly size: number;
  /**
   * Age in seconds of the newest source's list, by the date in the list. A list without a date counts from when its
   * source last confirmed it. Null if no list was read yet.
   */
  readonly ageSeconds: number | null;
  readonly sources: readonly TorSourceStatus[];
}

/** Status of one source of the Tor exit list. */
export interface TorSourceStatus {
  /** The URL of the source without parts that may be secret, or its file path. */
  readonly source: string;
  /** When the source was last read or replied that nothing has changed (ISO 8601); null if never. */
  readonly confirmedAt: string | null;
  /**
   * Date of the list (ISO 8601): the newest date in it, or the modification date from the server or the file. Null if
   * unknown.
   */
  readonly datedAt: string | null;
  readonly datedBy: 'list' | 'server' | 'file' | null;
  readonly ageSeconds: number | null;
  readonly size: number;
  /**
   * How many addresses were omitted because they are reserved, for example private, loopback or documentation
   * addresses.
   */
  readonly leftOut: number;
  /** Why the last attempt to read the source failed; null if it succeeded. */
  readonly problem: string | null;
  /** How many attempts of this process to read the source failed or gave an invalid list, by reason. */
  readonly refusals: Readonly<Record<string, number>>;
}

/** The location of an IP address according to the GeoIP databases. */
export interface GeoLocation {
  /** Country code (ISO 3166-1 alpha-2); null if unknown. */
  readonly countryIsoCode: string | null;
  /** Number of the autonomous system; null if unknown. */
  readonly asNumber: number | null;
}

/** GeoIP databases. */
export interface GeoIp {
  locate(address: IpAddress): GeoLocation;
  /**
   * Whether the anonymous IP database lists the address, or the IPv4 address embedded in it, as a Tor exit. Null if
   * that database is unavailable.
   */
  isTorExit(address: IpAddress): boolean | null;
  close(): void;
}

/** Proves to upstream services which merchant makes a request. */
export interface CallerIdentity {
  /**
   * Returns the value of the header `x-gateway-assertion`: a JWT that names the merchant, its key and its environment.
   * It is signed for one upstream.
   */
  assertionFor(credential: Credential, upstreamName: string): Promise<string>;
  /** The JSON Web Key Set with which upstreams verify the assertions. It contains only public keys. */
  readonly publicKeys: object;
}

/** The gateway's span of a request in a distributed trace. */
export interface Span {
  /** 32 hex digits. */
  readonly traceId: string;
  /** 16 hex digits, like `parentId`. `parentId` is null if the client sent no trace context. */
  readonly spanId: string;
  readonly parentId: string | null;
  readonly name: string;
  /** Start time in milliseconds since 1970. `duration` is in milliseconds, too. */
  readonly startedAt: number;
  readonly duration: number;
  /** Whether the gateway or its upstream failed. */
  readonly failed: boolean;
  readonly attributes: Readonly<Record<string, string | number>>;
}

/** Exports spans to a tracing backend. Requests never wait for the export, and its failure does not affect them. */
export interface TraceExport {
  /** Whether the next request is sampled, so that its span is exported. The client's sampling flag is ignored. */
  sample(): boolean;
  take(span: Span): void;
  /** Returns how many spans were exported and dropped since the process started. */
  stats(): { readonly exported: number; readonly dropped: number };
  /** Exports the remaining spans, but waits no longer than the timeout. */
  close(timeoutMilliseconds: number): Promise<void>;
}

/** The time, in milliseconds since 1970. */
export interface Clock {
  now(): number;
}
