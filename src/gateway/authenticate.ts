import { type DenialCode, denyCredential, denyRequest } from '../policy/decision-table.js';
import type { Credential, RequestFacts } from '../policy/facts.js';
import { type Eventual, follow } from './eventual.js';
import { KeyStoreUnavailable, type KeyLookup, type KeyStore } from './key-store.js';

/**
 * The decision on a request, and what the key look-up found. `keyLookup` is null if the key was not looked up.
 * `credential` is the record of the key and its merchant; it is null if the key is unknown or was not looked up.
 */
export type Verdict =
  | { readonly denial: null; readonly credential: Credential; readonly keyLookup: KeyLookup }
  | { readonly denial: DenialCode; readonly credential: Credential | null; readonly keyLookup: KeyLookup | null };

/**
 * Decides on a request: checks the request rules, looks up the key, then checks the rules about the key and its
 * merchant.
 * @param lookupId the look-up id of the API key; not used if the key is absent, malformed or sent more than once
 * @throws KeyStoreUnavailable if the key cannot be looked up now. Callers must not respond with 401, because the key
 *   may be valid.
 * @throws Undecidable if a fact that a request rule needs is unknown
 */
export function authenticate(
  facts: RequestFacts,
  lookupId: string,
  keyStore: Pick<KeyStore, 'find'>,
): Eventual<Verdict> {
  const early = denyRequest(facts);
  if (early !== null) return { denial: early, credential: null, keyLookup: null };

  return follow(keyStore.find(lookupId), (keyLookup) => judgeCredential(facts, keyLookup));
}

function judgeCredential(facts: RequestFacts, keyLookup: KeyLookup): Verdict {
  const { credential } = keyLookup;
  if (credential !== null && credential.environment !== facts.environment) {
    // The key's prefix and its record name different environments, so the store is corrupt. The key could still be
    // valid, so the request fails as in an outage instead of with 401.
    throw new KeyStoreUnavailable(`the record of key ${credential.keyId} contradicts the key's prefix (live or test)`);
  }
  const denial = denyCredential(facts, credential);
  // Fail closed: deny a request without a known key even if the rules return no denial by mistake.
  return credential === null
    ? { denial: denial ?? 'key_unknown', credential, keyLookup }
    : { denial, credential, keyLookup };
}
