import type { RequestCheck } from './check.js';

/** The request comes neither from a Tor exit nor by way of an onion service (spec 5.5). */
export const torBlocked: RequestCheck<'tor_blocked'> = {
  code: 'tor_blocked',
  passes: (facts) => !facts.torExit && !facts.onionService,
};
