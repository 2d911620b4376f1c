import type { Problem } from './config-error.js';
import type { Config } from './schema.js';

/** A problem, and the other options that take part in it. */
export interface RuleProblem extends Problem {
  readonly others?: readonly string[];
}

/** Says what is wrong between options. */
export type Rule = (config: Config) => RuleProblem[];
