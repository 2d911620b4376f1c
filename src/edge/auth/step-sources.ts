import type { Pepper } from '../../gateway/api-key.js';
import type { Eventual } from '../../gateway/eventual.js';
import type { KeyStore } from '../../gateway/key-store.js';
import type { DenialCode } from '../../policy/decision-table.js';
import type { ConnectionFacts } from '../request/connection-facts.js';
import type { HeadLimits } from '../request/protocol.js';
import type { FactSources } from '../request/request-facts.js';
import type { RouteTable } from '../request/routes.js';

/** Dependencies of the steps that check a request. */
export interface StepSources extends FactSources {
  readonly keyStore: Pick<KeyStore, 'find' | 'knows'>;
  /** HMAC key for look-up ids, the hashes by which the store finds keys; null if these ids are plain SHA-256. */
  readonly pepper: Pepper | null;
  readonly routes: RouteTable;
  readonly headLimits: HeadLimits;
  readonly maxBodyBytes: number;
  readonly fingerprints: {
    /** Returns the fingerprint (HMAC) that the log shows instead of this key; null if the log has no HMAC secret. */
    of(key: string, lookupId: string): string | null;
  };
  /** Whether a text contains an API key, plain or encoded. */
  readonly containsKey: (text: string) => boolean;
  /** `sample` decides whether the next request is traced. Null if traces are not exported. */
  readonly traces: { sample(): boolean } | null;
  /** The throttle for clients that send requests without an acceptable key; null without a throttle. */
  readonly throttle: KeyThrottle | null;
  /** The limit on the request rate of each merchant; null without a limit. */
  readonly merchantRate: RateLimit | null;
  /** `problem` returns why the access log cannot be written; null if it can be, or if requests need no log line. */
  readonly requiredLog: { problem(): string | null };
  /** The overload detection. `problem` returns why the process is overloaded; null if it is not. */
  readonly overload: { problem(): string | null };
}

/** An API key and its sender: the inputs of the look-up limits. */
export interface KeySender {
  /** IPv4 address or IPv6 /64 of the client, as `sourceOf` returns it; null if unknown. */
  readonly source: string | null;
  readonly key: string;
  /** The client's own connection; null for a proxy's connection, which carries requests of many clients. */
  readonly connection: Pick<ConnectionFacts, 'usedFirstLookup'> | null;
}

/** Limits clients that send requests without an acceptable key. */
export interface KeyThrottle {
  /**
   * True while no client is throttled and all clients together are below `throttle.totalBadKeys`. In this state, a
   * request with a key needs no throttle check.
   */
  readonly isQuiet: boolean;
  /**
   * Returns the key store for one request. While the sender, or all senders together, are throttled, the returned store
   * limits look-ups of keys that `keyStore.knows` does not report as known.
   */
  sparing(keyStore: Pick<KeyStore, 'find' | 'knows'>, sender: KeySender): Pick<KeyStore, 'find'>;
  /**
   * Counts a denied request if the denial means that the request had no acceptable key.
   * @throws GatewayError `throttled` if the source is throttled and the denial would reveal whether the key exists
   */
  denied(source: string | null, denial: DenialCode): void;
}

/** Limits the request rate of each merchant. */
export interface RateLimit {
  /**
   * Counts a request of a merchant.
   * @param setHeaders called with the rate limit headers of the response, even if the request is rejected
   * @throws GatewayError `rate_limited`
   */
  count(merchantId: string, setHeaders: (headers: Readonly<Record<string, string>>) => void): Eventual<void>;
}

/** The client that waits for the response. */
export interface WaitingClient {
  /** Whether the client disconnected before the response was complete. */
  readonly callerIsGone: boolean;
}
