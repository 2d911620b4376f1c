import type { RequestCheck } from './check.js';

/** The request came over TLS (spec 5.2). First, so that nothing else is told to whoever listens on a plain line. */
export const httpsRequired: RequestCheck<'https_required'> = {
  code: 'https_required',
  passes: (facts) => facts.secure,
};
