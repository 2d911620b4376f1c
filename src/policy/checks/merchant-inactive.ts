import type { CredentialCheck } from './check.js';

/** The merchant's business status is ACTIVE (spec 5.5). */
export const merchantInactive: CredentialCheck<'merchant_inactive'> = {
  code: 'merchant_inactive',
  passes: (_facts, credential) => credential?.merchantStatus === 'ACTIVE',
};
