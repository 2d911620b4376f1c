import type { ChainCheck } from './chain-check.js';
import type { Finding } from './finding.js';

/** What was found out about a log. */
export interface Verdict {
  /** Whether nothing is wrong. */
  readonly intact: boolean;
  readonly lines: number;
  /** Requests that the lines of chains stand for: several may share a line. */
  readonly requests: number;
  readonly chains: readonly ChainCheck[];
  /** The first of them, in the order of the lines. */
  readonly findings: readonly Finding[];
  /** How many there are in all. */
  readonly findingCount: number;
  /** What cannot be proved, and is no sign of a change. */
  readonly notes: readonly string[];
}
