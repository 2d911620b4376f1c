import type { Generated } from '../../database/kysely.js';

/** An event of the audit trail. */
interface EventRow {
  seq: Generated<number>;
  at: number;
  actor: string;
  action: string;
  merchant_id: string;
  key_id: string | null;
  before: string | null;
  after: string | null;
  revision: number;
  administrator_id: Generated<string | null>;
  /**
   * The credential that proved the actor's identity; null in an event of an earlier release, which verified no actor.
   */
  proof: Generated<string | null>;
  claimed: Generated<string | null>;
  source: Generated<string | null>;
  request_id: Generated<string | null>;
  reason: Generated<string | null>;
}

/** The position of an event in the hash chain. Events that earlier releases stored have no such row. */
interface EventChainRow {
  /** The position of the event in the chain. Positions begin with 1 and have no gaps. */
  position: number;
  seq: number;
  /** SHA-256 over the hash at the previous position and the content of the event, in hex. */
  hash: string;
}

/**
 * The single row with the end of the hash chain of events, and with the end of its deleted part. Each writer of events
 * locks this row, so that events are appended one after another.
 */
interface EventTailRow {
  id: 1;
  position: number;
  hash: string;
  /** Events up to this sequence number are from an earlier release and have no position in the chain. */
  unchained_seq: number;
  /** The position of the last event that was deleted after its retention period; 0 if no chained event was deleted. */
  pruned_position: number;
  pruned_hash: string;
  pruned_at: number | null;
  /**
   * `pruned_position` and `pruned_hash` with a signature. Null if no chained event was deleted, or if the registry had
   * no signing key.
   */
  pruned_note: string | null;
}

/** A signature over the end of the hash chain of events. It proves which events existed at the time of signing. */
interface EventCheckpointRow {
  position: number;
  signed_at: number;
  note: string;
}

/** The tables of the audit trail. */
export interface EventTables {
  events: EventRow;
  event_chain: EventChainRow;
  event_tail: EventTailRow;
  event_checkpoints: EventCheckpointRow;
}
