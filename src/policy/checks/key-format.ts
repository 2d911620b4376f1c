import type { RequestCheck } from './check.js';

/** The key is one, and begins as keys do (spec 2.5). */
export const keyFormat: RequestCheck<'key_format'> = {
  code: 'key_format',
  passes: (facts) => facts.keyFormat === 'live' || facts.keyFormat === 'test',
};
