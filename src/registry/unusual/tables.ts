/** How a key is usually used: the state of the detectors, as JSON. */
interface KeyHabitRow {
  key_id: string;
  state: string;
}

/** The single row about the usage that arrives. Times are in milliseconds since 1970. */
interface UsageWatchRow {
  id: 1;
  /** Since when usage has arrived without an interruption of a day. */
  since: number;
  last_at: number;
  /** When usage last had the country, and the AS number, of an address; null before that. */
  country_at: number | null;
  network_at: number | null;
}

/** One finding about the use of a key. */
interface UnusualFindingRow {
  id: string;
  key_id: string;
  merchant_id: string;
  rule: string;
  pattern: string;
  found_at: number;
  /** Time of the first request that shows it. */
  seen_at: number;
  message: string;
  address: string | null;
  country: string | null;
  as_number: number | null;
  /** Null until an administrator answers. */
  decision: string | null;
  decided_at: number | null;
  decided_by: string | null;
}

/** A pattern that an administrator called fine for a key. */
interface UsualPatternRow {
  key_id: string;
  pattern: string;
}

/** A webhook that was not delivered yet, to one target. */
interface WebhookRow {
  /** The id of the message: the same for all targets and all attempts. */
  id: string;
  /** Digest of the URL, because a URL may contain a secret. */
  target: string;
  body: string;
  created_at: number;
  attempts: number;
  next_at: number;
  given_up_at: number | null;
  problem: string | null;
}

/** The tables about unusual use. */
export interface UnusualTables {
  key_habits: KeyHabitRow;
  usage_watch: UsageWatchRow;
  unusual_findings: UnusualFindingRow;
  usual_patterns: UsualPatternRow;
  webhooks: WebhookRow;
}
