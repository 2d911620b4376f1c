import type { DenialCode } from '../policy/decision-table.js';
import { denyCredential, denyRequest } from '../policy/decision-table.js';
import type { Credential, RequestFacts } from '../policy/facts.js';
import { follow } from './eventual.js';
import type { Eventual } from './eventual.js';
import { KeyStoreUnavailable, type KeyLookup, type KeyStore } from './key-store.js';

/**
 * The decision on a request, and the result of the key look-up, which is null if the key was not looked up. A denial
 * includes the credential if the key is known.
 */
export type Verdict =
  | { readonly denial: null; readonly credential: Credential; readonly keyLookup: KeyLookup }
  | { readonly denial: DenialCode; readonly credential: Credential | null; readonly keyLookup: KeyLookup | null };

/**
 * Decides on a request: checks the request rules, looks up the key, then checks the rules about the key and its
 * merchant.
 * @param lookupId the look-up id of the request's only key; ignored unless the facts contain a valid key format
 * @throws KeyStoreUnavailable if the key cannot be looked up now. This is no decision, so it must not cause a 401
 * @throws Undecidable if a request rule cannot be evaluated
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
    // The key's prefix and its record name different environments, so the store is corrupt. Neither can be trusted.
    throw new KeyStoreUnavailable(
      `the record of key ${credential.keyId} has another environment than the prefix of the key`,
    );
  }
  const denial = denyCredential(facts, credential);
  // Denies a request without a credential in any case, even if the rules return no denial by mistake.
  return credential === null
    ? { denial: denial ?? 'key_unknown', credential, keyLookup }
    : { denial, credential, keyLookup };
}
