import type { Credential } from '../policy/facts.js';
import type { Eventual } from './eventual.js';

/**
 * Where a record was read: from the store (`store`), from the cache while it is known to be current (`cache`), or from
 * the cache while the gateway receives no invalidation messages (`stale`).
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
   * @param lookupId the hex SHA-256 of the whole key, or its HMAC with the pepper (a secret)
   * @throws KeyStoreUnavailable if the key cannot be looked up now
   */
  find(lookupId: string): Eventual<KeyLookup>;
  /**
   * Whether a look-up result is cached, or the key is known to exist. For all other keys, the throttle limits the
   * look-ups, because a client that sends an unknown key may be guessing keys. If a store lacks this method, every key
   * counts as unknown.
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

/** Thrown if the key store is unavailable. The message is for operators and contains no API key. */
export class KeyStoreUnavailable extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'KeyStoreUnavailable';
  }
}
