/** The rules, each of which reports one kind of unusual use. */
export const unusualRules = [
  ...(['new-country', 'new-network', 'idle-key', 'surge', 'new-addresses', 'refusals', 'tor', 'plain-http'] as const),
] as const;

/** The name of a rule. */
export type UnusualRule = (typeof unusualRules)[number];

/** When the rules report. */
export interface Thresholds {
  /** Rules that report nothing. */
  readonly off: readonly UnusualRule[];
  /** Days of use before the rules about places, addresses and refusals report anything of a key. */
  readonly learnDays: number;
  /** Days of use before `surge` does: long enough that each monthly peak was seen. */
  readonly surgeLearnDays: number;
  readonly idleDays: number;
  /** How many times its own busiest hour a key has to exceed. */
  readonly surgeFactor: number;
  /** Fewer accepted requests in an hour are never a surge. */
  readonly surgeRequests: number;
  /** New address blocks within an hour. */
  readonly newAddresses: number;
  /** Refused requests within an hour. */
  readonly refusals: number;
}

/** One finding: what is unusual about the use of a key. */
export interface Finding {
  readonly rule: UnusualRule;
  /** The rule, with what it saw for the first time: `new-country:KE`. A pattern that is fine is not reported again. */
  readonly pattern: string;
  /** Time of the first request that shows it, as far as the counts tell. */
  readonly at: number;
  /** What was seen, in one sentence without secrets. */
  readonly message: string;
  readonly address: string | null;
  readonly country: string | null;
  readonly asNumber: number | null;
}

/** When the usage is observed. */
export interface Moment {
  readonly now: number;
  /** Begin of the period that was counted: a second, or longer if counts had to wait. */
  readonly from: number;
  /** Since when usage has been observed without a long interruption. Nobody knows whether keys were idle before. */
  readonly watchedSince: number;
}
