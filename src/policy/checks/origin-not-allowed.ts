import type { CredentialCheck } from './check.js';

/** The request's origin is on the merchant's origin allowlist, where there is one (spec 5.5). */
export const originNotAllowed: CredentialCheck<'origin_not_allowed'> = {
  code: 'origin_not_allowed',
  passes: (facts, credential) =>
    credential !== null &&
    (credential.originAllowlist === null ||
      (facts.origin !== null && credential.originAllowlist.matches(facts.origin))),
};
