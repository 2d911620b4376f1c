import type { KeyLookup } from '../../gateway/key-store.js';
import type { GeoLocation } from '../../gateway/ports.js';
import type { Credential, RequestFacts } from '../../policy/facts.js';
import type { IpAddress } from '../../policy/ip-address.js';
import type { HeaderList } from './request-data.js';
import type { RouteMatch } from './routes.js';
import type { TraceContext } from './trace-context.js';

/**
 * Results of the steps that check a request. Only the step that determines a field writes it, so the field stays null
 * if that step is skipped. The access log uses the fields even if a later step fails.
 */
export class Findings {
  /** The id of the request, sent as `x-request-id`; empty before the first step. */
  id = '';
  /** The client's address; null if it is unknown or not resolved yet. */
  clientAddress: IpAddress | null = null;
  trace: TraceContext | null = null;
  /** The fingerprint (HMAC) that is logged instead of the key; null without a key or without a secret for the HMAC. */
  keyFingerprint: string | null = null;
  match: RouteMatch | null = null;
  /** Country and AS number of the client address; null without a GeoIP database. */
  location: GeoLocation | null = null;
  /** Digest of the Tor exit list that contains the client address; null if the address is not listed. */
  torListDigest: string | null = null;
  facts: RequestFacts | null = null;
  /** Duration of the key look-up in milliseconds, even if it failed; null without a look-up. */
  lookupDuration: number | null = null;
  /** The key store's result; null without a look-up. */
  keyLookup: KeyLookup | null = null;
  credential: Credential | null = null;
  /**
   * Look-up id (hash) of the key, if the request was denied before the key look-up; otherwise null. With this id, the
   * request log looks up the owner of the key, because third parties could have read a key that was sent over plain
   * HTTP or Tor.
   */
  exposedLookupId: string | null = null;
  /**
   * Headers that the gateway adds to every response to this request, whether the response is its own or the upstream's.
   */
  readonly responseHeaders: HeaderList;

  /** @param ownHeaders headers that the listener adds to every response */
  constructor(ownHeaders: HeaderList) {
    this.responseHeaders = [...ownHeaders];
  }
}
