import { Undecidable } from '../undecidable.js';
import type { RequestCheck } from './check.js';

/** The request comes neither from a Tor exit nor by way of an onion service (spec 5.5). */
export const torBlocked: RequestCheck<'tor_blocked'> = {
  code: 'tor_blocked',
  passes: ({ onionService, torExit }) => {
    if (onionService || torExit === true) return false;
    if (torExit === null)
      throw new Undecidable('tor_blocked', 'it cannot be told whether the client address is a Tor exit');
    return true;
  },
};
