import type { CredentialCheck } from './check.js';

/** The key is neither revoked, nor switched off, nor past its end (spec 5.5). */
export const keyInactive: CredentialCheck<'key_inactive'> = {
  code: 'key_inactive',
  passes: (facts, credential) =>
    credential?.keyStatus === 'ACTIVE' && (credential.expiresAt === null || facts.now < credential.expiresAt),
};
