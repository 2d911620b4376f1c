import type { CredentialCheck } from './check.js';

/** The key store knows the key. */
export const keyUnknown: CredentialCheck<'key_unknown'> = {
  code: 'key_unknown',
  passes: (_facts, credential) => credential !== null,
};
