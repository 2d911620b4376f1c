import type { Credential } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import type { Eventual } from './eventual.js';

/** Whether a token was taken from a token bucket, and how many tokens remain (can be a fraction). */
export interface TokenTake {
  readonly taken: boolean;
  readonly tokens: number;
}

/** A rate limit per merchant, as token buckets that all gateways share. */
export interface SharedRate {
  /**
   * Takes a token from the bucket of a merchant. Returns null if the shared store is unavailable: at once if the outage
   * is already known, otherwise after a timeout. Never throws or rejects.
   */
  take(merchantId: string): Eventual<TokenTake | null>;
  close(): Promise<void>;
}

/** The list of Tor exit addresses. */
export interface TorExits {
  /**
   * Whether an address is a Tor exit. Null means unknown: there is no usable list, and the configuration denies
   * requests without a usable list.
   */
  has(address: IpAddress): boolean | null;
  /** SHA-256 of the current list in hex; null if there is no list. */
  readonly digest: string | null;
  /**
   * Returns why requests are denied for lack of a usable list; for operators. Null if the list is usable, or if the
   * configuration allows requests without a usable list.
   */
  unavailableReason(): string | null;
  /** Returns a warning for operators if the list in use was read from a file that is too old; otherwise null. */
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
   * Age in seconds of the newest list of any source, counted from the date of the list (`datedAt`). The age of a list
   * without a date counts from when its source last confirmed it. Null if no list was read yet.
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
  /** How many addresses were omitted because they are reserved, such as private and documentation addresses. */
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

/** Look-ups in the GeoIP databases. */
export interface GeoIp {
  locate(address: IpAddress): GeoLocation;
  /**
   * Whether the anonymous IP database lists the address, or the IPv4 address embedded in it, as a Tor exit. Null means
   * unknown: the database is damaged, and the configuration denies requests without a usable database.
   */
  isTorExit(address: IpAddress): boolean | null;
  close(): void;
}

/** Proves to upstream services which merchant makes a request. */
export interface CallerIdentity {
  /**
   * Returns the value of the header `x-gateway-assertion`: a JWT that names the merchant, its key and its environment.
   * The audience of the JWT is the upstream with this name.
   */
  assertionFor(credential: Credential, upstreamName: string): Promise<string>;
  /** The JSON Web Key Set with which upstreams verify the assertions. It contains only public keys. */
  readonly publicKeys: object;
}

/** The gateway's span of a request in a distributed trace. */
export interface Span {
  /** The id of the trace, 32 hex digits. */
  readonly traceId: string;
  /** The id of this span, 16 hex digits. */
  readonly spanId: string;
  /** The id of the client's span, 16 hex digits; null if the client sent no trace context. */
  readonly parentId: string | null;
  readonly name: string;
  /** Start time, in milliseconds since 1970. */
  readonly startedAt: number;
  /** Duration in milliseconds. */
  readonly duration: number;
  /** Whether the gateway or its upstream failed to handle the request. */
  readonly failed: boolean;
  readonly attributes: Readonly<Record<string, string | number>>;
}

/** Exports spans to a tracing backend. Requests never wait for the export, and do not fail if the export fails. */
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
