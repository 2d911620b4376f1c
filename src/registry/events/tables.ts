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
  /** How the identity of the actor was proven; null in an event of an earlier release, where nothing proves it. */
  proof: Generated<string | null>;
  claimed: Generated<string | null>;
  source: Generated<string | null>;
  request_id: Generated<string | null>;
  reason: Generated<string | null>;
}

/** The place of an event in the chain. Events of earlier releases have none. */
interface EventChainRow {
  /** From 1, without gaps. */
  position: number;
  seq: number;
  /** SHA-256 over the hash at the position before and the content of the event, in hex. */
  hash: string;
}

/** The single row with the end of the chain of events, and what was pruned of it. Each writer of events locks it. */
interface EventTailRow {
  id: 1;
  position: number;
  hash: string;
  /** Events up to this `seq` are of an earlier release and not in the chain. */
  unchained_seq: number;
  /** Chained events up to this position were deleted after their retention period. */
  pruned_position: number;
  pruned_hash: string;
  pruned_at: number | null;
  /** The signed end of what was pruned; null if this registry has no key for it. */
  pruned_note: string | null;
}

/** A signed end of the chain of events. */
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
