import type { RequestCheck } from './check.js';

/** The sandbox takes test keys alone (spec 5.4), so that a live key is never tried out there. */
export const liveKeyInTest: RequestCheck<'live_key_in_test'> = {
  code: 'live_key_in_test',
  passes: (facts) => facts.environment !== 'test' || facts.keyFormat === 'test',
};
