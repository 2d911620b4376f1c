import type { RequestCheck } from './check.js';

/** Production takes live keys alone (spec 5.4). */
export const testKeyInLive: RequestCheck<'test_key_in_live'> = {
  code: 'test_key_in_live',
  passes: (facts) => facts.environment !== 'live' || facts.keyFormat === 'live',
};
