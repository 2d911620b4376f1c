import type { RequestCheck } from './check.js';

/** There is a key in `x-api-key` (spec 5.1). */
export const keyRequired: RequestCheck<'key_required'> = {
  code: 'key_required',
  passes: (facts) => facts.keyFormat !== 'absent',
};
