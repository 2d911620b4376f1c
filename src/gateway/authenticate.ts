import type { DenialCode } from '../policy/decision-table.js';
import { denyCredential, denyRequest } from '../policy/decision-table.js';
import type { Credential, RequestFacts } from '../policy/facts.js';
import { follow } from './eventual.js';
import type { Eventual } from './eventual.js';
import { KeyStoreUnavailable } from './ports.js';
import type { KeyAnswer, KeyStore } from './ports.js';

/**
 * What was decided, and what the key store answered; null where it was not asked. A denial still says whose key it was,
 * where the key is known.
 */
export type Verdict =
  | { readonly denial: null; readonly credential: Credential; readonly answer: KeyAnswer }
  | { readonly denial: DenialCode; readonly credential: Credential | null; readonly answer: KeyAnswer | null };

/**
 * Decides about a request: its own rules, then its key's record, then the rules about that.
 * @param lookupId the look-up id of the one key that came; only used where the facts say that one did
 * @throws KeyStoreUnavailable when the key cannot be looked up now: no decision, and never a denial
 * @throws Undecidable where a rule about the request comes up of which nothing can be said
 */
export function authenticate(
  facts: RequestFacts,
  lookupId: string,
  keyStore: Pick<KeyStore, 'find'>,
): Eventual<Verdict> {
  const early = denyRequest(facts);
  if (early !== null) return { denial: early, credential: null, answer: null };

  return follow(keyStore.find(lookupId), (answer) => judgeCredential(facts, answer));
}

function judgeCredential(facts: RequestFacts, answer: KeyAnswer): Verdict {
  const { credential } = answer;
  if (credential !== null && credential.environment !== facts.environment) {
    // The key's prefix and its record disagree: the store is damaged, and whom to believe cannot be known.
    throw new KeyStoreUnavailable(`the record of key ${credential.keyId} names another environment than the key`);
  }
  const denial = denyCredential(facts, credential);
  // Whatever the checks say, nobody is let in without a credential.
  return credential === null ? { denial: denial ?? 'key_unknown', credential, answer } : { denial, credential, answer };
}
