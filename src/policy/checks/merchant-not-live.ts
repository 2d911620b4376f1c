import type { CredentialCheck } from './check.js';

/** In production the merchant has gone live (spec 5.5). */
export const merchantNotLive: CredentialCheck<'merchant_not_live'> = {
  code: 'merchant_not_live',
  passes: (facts, credential) => credential !== null && (facts.environment !== 'live' || credential.goLive),
};
