import type { CredentialCheck } from './check.js';

/** The caller is on the merchant's IP allowlist, where there is one (spec 5.5). An empty list admits nobody. */
export const ipNotAllowed: CredentialCheck<'ip_not_allowed'> = {
  code: 'ip_not_allowed',
  passes: (facts, credential) =>
    credential !== null && (credential.ipAllowlist === null || credential.ipAllowlist.admits(facts.clientAddress)),
};
