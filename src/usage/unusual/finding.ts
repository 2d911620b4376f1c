/** The rules, each of which reports one kind of unusual use. */
export const unusualRules = [
  ...(['new-country', 'new-network', 'idle-key', 'surge', 'new-addresses', 'refusals', 'tor', 'plain-http'] as const),
] as const;

/** The name of a rule. */
export type UnusualRule = (typeof unusualRules)[number];

/** The thresholds at which the rules report. */
export interface Thresholds {
  /** Rules that are switched off, so that they report nothing. */
  readonly off: readonly UnusualRule[];
  /**
   * For this many days after the first use of a key, the rules about countries, networks, surges, addresses and
   * refusals do not apply to it.
   */
  readonly learnDays: number;
  /**
   * For this many days after a key's first use, `surge` ignores hours on usual paydays, because the monthly peaks of
   * the key are not known yet.
   */
  readonly surgeLearnDays: number;
  /** `idle-key` reports a use only after at least this many days without use. */
  readonly idleDays: number;
  /** `surge` reports an hour with more accepted requests than the busiest earlier hour times this factor. */
  readonly surgeFactor: number;
  /** `surge` reports an hour only if it has at least this many accepted requests. */
  readonly surgeRequests: number;
  /** `new-addresses` reports an hour only if it has at least this many new address blocks. */
  readonly newAddresses: number;
  /** `refusals` reports an hour only if it has at least this many refused requests. */
  readonly refusals: number;
}

/** One finding: what is unusual about the use of a key. */
export interface Finding {
  readonly rule: UnusualRule;
  /**
   * The name of the rule, followed by the new value if the rule found one. Examples: `surge`, `new-country:KE`. After
   * an administrator has marked a pattern as `fine`, the pattern is not reported again for the key.
   */
  readonly pattern: string;
  /** Time of the first unusual request in milliseconds since 1970, as precisely as the counts show it. */
  readonly at: number;
  /** What was seen, in one sentence without secrets. */
  readonly message: string;
  readonly address: string | null;
  readonly country: string | null;
  readonly asNumber: number | null;
}

/** The time of an observation, and the period that it covers, in milliseconds since 1970. */
export interface Moment {
  readonly now: number;
  /**
   * Start of the counted period. The period is usually a second. It is longer after a time without requests, or if the
   * gateway could not send its counts at once.
   */
  readonly from: number;
  /**
   * Since when usage has been observed without a long interruption. It is unknown whether a key was used before that
   * time.
   */
  readonly watchedSince: number;
}
