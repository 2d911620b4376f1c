import type { Generated } from '../database/kysely.js';
import type { Environment } from '../policy/key-format.js';

// Timestamps are milliseconds since 1970, lists and snapshots are JSON texts, booleans are 1 or 0: SQLite has no such
// types.

interface MerchantRow {
  id: string;
  name: string;
  status: string;
  go_live: number;
  ip_allowlist: string | null;
  origin_allowlist: string | null;
  /** The change that created it. Orders merchants by creation; a clock cannot do so within a millisecond. */
  created_revision: number;
  /** The newest change. */
  revision: number;
  created_at: number;
  updated_at: number;
  /** Time of the last status change; null if unknown, e.g. for imported merchants. */
  status_changed_at: Generated<number | null>;
}

interface KeyRow {
  key_id: string;
  merchant_id: string;
  /** The only stored trace of the key itself. */
  lookup_id: string;
  environment: Environment;
  status: string;
  permissions: string;
  label: string | null;
  expires_at: number | null;
  created_revision: number;
  revision: number;
  created_at: number;
  updated_at: number;
  /** Time of the last status change; null if unknown, e.g. for imported keys. */
  status_changed_at: Generated<number | null>;
}

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
}

/** A record that this revision's change still has to write to the store. */
interface OutboxRow {
  revision: number;
  name: string;
  /** The name of that change; null if an earlier release made it. */
  change: Generated<string | null>;
}

/** The single row with the revision counter, which every change increments. */
interface RevisionRow {
  id: 1;
  value: number;
  /** The current generation. A store with records of another one is rebuilt. */
  generation: string;
  /** Comma-separated run ids of the servers last compared with this database; null before a comparison. */
  servers: Generated<string | null>;
  /** 0 while a gateway unknown to this database may use records. */
  is_open: Generated<number>;
  /** When `is_open` becomes 1; null if unknown, or if it is 1. */
  opens_at: Generated<number | null>;
  /** The newest change published in this generation. */
  published_revision: Generated<number>;
  published_change: Generated<string | null>;
  /** Comma-separated ids of the secrets of which one seals each record; null if some may be unsealed. */
  sealed_by: Generated<string | null>;
  /** The published change for which `sealed_by` holds. An earlier release publishes without sealing. */
  sealed_change: Generated<string | null>;
}

/** The roster: gateways that may use cached records. */
interface GatewayRow {
  instance_id: string;
  host: string;
  environment: Environment;
  /** Null for a gateway of an earlier release, which does not report it. */
  version: string | null;
  first_seen: number;
  /** How long after its last sign of life it may still hold records. */
  lifetime_milliseconds: number;
  /** The change that enrolled it. */
  revision: number;
  /** 1 once a sealed acknowledgement was seen: unsealed ones are then rejected. */
  seals: Generated<number>;
}

/** A former generation of this database, whose records a store may still have. */
interface FormerGenerationRow {
  generation: string;
}

/** A period for which this database may lack changes. */
interface RestoreRow {
  seq: Generated<number>;
  found_at: number;
  /** Time of the newest event in the database; null without events. */
  newest_at: number | null;
  /** 1 if another source knew a change that the database lacks; 0 if no such source is left. */
  is_certain: number;
}

/** A key or merchant that is inactive because another source knew it as inactive under a later revision. */
interface HeldBackRow {
  /** The id of the key or the merchant. */
  id: string;
  kind: 'key' | 'merchant';
  merchant_id: string;
  /** The source: `store`, or the instance id of a gateway. */
  source: string;
  /** The restored database's values of the changed columns, as JSON. */
  was: string;
  found_at: number;
}

/** The single row with the projecting process. Each renewal changes it; `lease_ends_at` is 0 after a release. */
interface ProjectorRow {
  id: 1;
  holder: string;
  lease_ends_at: number;
}

/** A public key that signs checkpoints of an instance, and its period of validity. */
interface InstanceKeyRow {
  public_key: string;
  name: string;
  pinned_at: number;
  /** Who pinned the key; `registry` if the registry took it from the first checkpoint of that name. */
  pinned_by: string;
  counts_from: number;
  /** Null while no administrator has ended it. */
  counts_to: number | null;
  confirmed_at: number | null;
  confirmed_by: string | null;
}

/** The newest checkpoint of a run of an access log. */
interface RunRow {
  /** The names of the instance and of the run. */
  origin: string;
  /** The name of the instance. */
  name: string;
  run_key: string;
  size: number;
  /** The signed note, with its receipt. */
  note: string;
  occasion: string;
  signed_at: number;
  began_at: number;
  received_at: number;
  /** When its newest checkpoint in the list was received. */
  listed_at: number;
  every_seconds: number;
  /** The origin of the run that it names as its predecessor. */
  previous_run: string | null;
  /** The origin of the run that it names as its successor. */
  next_run: string | null;
  /** 1 if it is silent and a finding reports that. */
  was_missed: Generated<number>;
}

/** An accepted checkpoint that a newer one of its run has replaced. */
interface EarlierCheckpointRow {
  /** SHA-256 of its signed text, in base64. */
  digest: string;
  received_at: number;
}

/** A leaf of the list's Merkle tree. */
interface CheckpointListRow {
  /** The index of the leaf, from 0. */
  seq: number;
  received_at: number;
  note: string;
}

/** The single row with the state of the list's Merkle tree. */
interface CheckpointTreeRow {
  id: 1;
  size: number;
  /** Comma-separated roots of its complete subtrees, in hex. */
  subtrees: string;
}

/** A problem that the witness found. */
interface CheckpointFindingRow {
  id: string;
  found_at: number;
  kind: string;
  origin: string;
  message: string;
}

/** The tables of the registry. */
export interface RegistryTables {
  merchants: MerchantRow;
  api_keys: KeyRow;
  events: EventRow;
  outbox: OutboxRow;
  revision: RevisionRow;
  former_generations: FormerGenerationRow;
  gateways: GatewayRow;
  held_back: HeldBackRow;
  restores: RestoreRow;
  projector: ProjectorRow;
  instance_keys: InstanceKeyRow;
  runs: RunRow;
  earlier_checkpoints: EarlierCheckpointRow;
  checkpoint_list: CheckpointListRow;
  checkpoint_tree: CheckpointTreeRow;
  checkpoint_findings: CheckpointFindingRow;
}
