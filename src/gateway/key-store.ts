import type { Credential } from '../policy/facts.js';
import type { Eventual } from './eventual.js';

/**
 * Where a record was read:
 * - `store`: from the store;
 * - `cache`: from the cache, while cached records are known to be current;
 * - `stale`: from the cache, while the gateway receives no invalidation messages.
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
 * Finds credentials by look-up id. If a key does not exist, its credential is null. During an outage, a look-up fails
 * with `KeyStoreUnavailable`: a null credential would give the client a 401 for a valid key.
 */
export interface KeyStore {
  /**
   * @param lookupId the hex SHA-256 of the whole key, or its HMAC with the pepper (a secret)
   * @throws KeyStoreUnavailable if the key cannot be looked up now
   */
  find(lookupId: string): Eventual<KeyLookup>;
  /**
   * Whether the store has cached the look-up result of this key, or remembers that the key exists. The throttle limits
   * the look-ups of all other keys, because a client that sends them may be guessing keys. If a store lacks this
   * method, the throttle limits the look-ups of every key.
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
