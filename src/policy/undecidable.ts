import type { DenialCode } from './denials.js';

/** Nothing can be said about a rule, because what it depends on is not known. Never a denial, and never a pass. */
export class Undecidable extends Error {
  constructor(
    /** The rule. */
    readonly code: DenialCode,
    reason: string,
  ) {
    super(reason);
    this.name = 'Undecidable';
  }
}
