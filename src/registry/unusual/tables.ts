/** The usual behaviour of a key. `state` is what the rules about unusual use have learned, as JSON. */
interface KeyHabitRow {
  key_id: string;
  state: string;
}

/**
 * The single row with the times when usage data arrived, in milliseconds since 1970. The rules about unusual use need
 * usage data without an interruption, and these times show whether there was an interruption.
 */
interface UsageWatchRow {
  id: 1;
  /** Start of the period in which usage has arrived without an interruption of a day. */
  since: number;
  last_at: number;
  /** When usage last contained a country; null if never. */
  country_at: number | null;
  /** When usage last contained a country or an AS number; null if never. */
  network_at: number | null;
}

/** A finding: a detected case of unusual use of a key. */
interface UnusualFindingRow {
  id: string;
  key_id: string;
  merchant_id: string;
  rule: string;
  pattern: string;
  found_at: number;
  /** Time of the first request that shows the unusual use. */
  seen_at: number;
  message: string;
  address: string | null;
  country: string | null;
  as_number: number | null;
  /** The decision of an administrator about the finding (one of `findingDecisions`); null before the decision. */
  decision: string | null;
  decided_at: number | null;
  decided_by: string | null;
}

/** A pattern of use that an administrator accepted for a key. It is no longer reported for this key. */
interface UsualPatternRow {
  key_id: string;
  pattern: string;
}

/** A webhook message that one target has not accepted yet. */
interface WebhookRow {
  /** The id of the message, which is equal for all targets and attempts. */
  id: string;
  /** Digest of the target's URL. The URL itself is not stored, because it could contain a secret. */
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
