import { credentialChecks, requestChecks } from './checks/index.js';
import type { DenialCode } from './denials.js';
import type { Credential, RequestFacts } from './facts.js';

/**
 * The first rule that the request itself breaks; null where its key may be looked up.
 * @throws Undecidable where a rule comes up of which nothing can be said
 */
export function denyRequest(facts: RequestFacts): DenialCode | null {
  return requestChecks.find((check) => !check.passes(facts))?.code ?? null;
}

/** The first rule that the request breaks with this credential (null: the key is unknown); null where it is accepted. */
export function denyCredential(facts: RequestFacts, credential: Credential | null): DenialCode | null {
  return credentialChecks.find((check) => !check.passes(facts, credential))?.code ?? null;
}

/**
 * The whole decision: the first row of the table that fails, or null where the request is accepted.
 * @throws Undecidable
 */
export function decide(facts: RequestFacts, credential: Credential | null): DenialCode | null {
  return denyRequest(facts) ?? denyCredential(facts, credential);
}
