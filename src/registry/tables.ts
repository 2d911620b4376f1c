import type { Generated } from '../database/kysely.js';
import type { AdministratorTables } from './administrators/tables.js';
import type { ApprovalTables } from './approvals/tables.js';
import type { ConsoleTables } from './console/tables.js';
import type { EventTables } from './events/tables.js';
import type { Environment } from '../policy/key-format.js';
import type { SignInRow } from './sign-in/sign-in-row.js';
import type { UsageTables } from './usage/tables.js';
import type { UnusualTables } from './unusual/tables.js';

// SQLite has no types for times, lists or booleans. Timestamps are therefore milliseconds since 1970, lists and
// snapshots are JSON texts, and booleans are 1 or 0.

interface MerchantRow {
  id: string;
  name: string;
  status: string;
  go_live: number;
  ip_allowlist: string | null;
  origin_allowlist: string | null;
  /**
   * Revision (number) of the change that created the merchant. Lists are sorted by this column, because several
   * merchants may have the same `created_at`.
   */
  created_revision: number;
  /** Revision of the newest change of the merchant. */
  revision: number;
  created_at: number;
  updated_at: number;
  /** Time of the last status change; null if unknown, for example for an imported merchant. */
  status_changed_at: Generated<number | null>;
}

interface KeyRow {
  key_id: string;
  merchant_id: string;
  /** The SHA-256 or HMAC of the key. The database does not store the key itself. */
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
  /** Time of the last status change; null if unknown, for example for an imported key. */
  status_changed_at: Generated<number | null>;
}

/** A row of the outbox: a change has been made to this record, and the record still has to be written to the store. */
interface OutboxRow {
  revision: number;
  name: string;
  /** The name of the change; null if an earlier release made it. */
  change: Generated<string | null>;
}

/** The single row with the revision counter, which every change increments, and with the state of the store. */
interface RevisionRow {
  id: 1;
  value: number;
  /**
   * The id of the current generation (a complete rewrite of the store). If the store has another generation, all
   * records are rewritten.
   */
  generation: string;
  /**
   * Comma-separated run ids (`run_id`) of the Redis servers that were last found consistent with this database; null
   * before the first comparison.
   */
  servers: Generated<string | null>;
  /**
   * 0 while a gateway that is not in the table `gateways` may use cached records, otherwise 1. While it is 0, no change
   * counts as confirmed by all gateways.
   */
  is_open: Generated<number>;
  /** When `is_open` becomes 1; null if unknown, or if it is 1. */
  opens_at: Generated<number | null>;
  /**
   * Revision of the newest change that was announced to gateways since the store was last rewritten (in this
   * generation); 0 before the first.
   */
  published_revision: Generated<number>;
  published_change: Generated<string | null>;
  /**
   * Comma-separated ids of secrets. Each record in the store is sealed (authenticated) with one of them. Null if some
   * records may be unsealed.
   */
  sealed_by: Generated<string | null>;
  /**
   * The name of the published change for which `sealed_by` is valid. An earlier release publishes changes without
   * sealing their records, so `sealed_by` then becomes invalid.
   */
  sealed_change: Generated<string | null>;
}

/**
 * A gateway in the roster, the list of gateways that may use cached records. A change is confirmed when all of them
 * have acknowledged it.
 */
interface GatewayRow {
  instance_id: string;
  host: string;
  environment: Environment;
  /** Null for a gateway of an earlier release, which does not report its version. */
  version: string | null;
  first_seen: number;
  /** How long the gateway may still use cached records after its last heartbeat. */
  lifetime_milliseconds: number;
  /** Revision of the change that added the gateway. */
  revision: number;
  /**
   * 1 after the gateway has sent a sealed (authenticated) acknowledgement. Its unsealed ones are then rejected, because
   * anyone could forge them.
   */
  seals: Generated<number>;
}

/**
 * An earlier generation (complete rewrite of the store) of this database. A store with its records, for example a
 * restored one, still belongs to this database.
 */
interface FormerGenerationRow {
  generation: string;
}

/** A restore of this database from a backup. Changes between `newest_at` and `found_at` may be missing. */
interface RestoreRow {
  seq: Generated<number>;
  found_at: number;
  /** Time of the newest event in the restored database; null if it had no events. */
  newest_at: number | null;
  /**
   * 1 if the store or a gateway has a change that the database lacks; 0 if neither has one, so the database may be
   * complete.
   */
  is_certain: number;
}

/**
 * A key or merchant that the registry deactivated after a restore, because its record in the store or in a gateway has
 * a later revision and fewer rights.
 */
interface HeldBackRow {
  /** The id of the key or the merchant. */
  id: string;
  kind: 'key' | 'merchant';
  merchant_id: string;
  /** Where the later revision was found: `store`, or the instance id of a gateway. */
  source: string;
  /** The values of the changed columns before the deactivation, as JSON. */
  was: string;
  found_at: number;
}

/**
 * The single row with the lease: it names the only process that may write records to the store. Each renewal changes
 * `lease_ends_at`; 0 means that the lease was released.
 */
interface ProjectorRow {
  id: 1;
  holder: string;
  lease_ends_at: number;
}

/** A public key that verifies checkpoints of an instance's access log, and its period of validity. */
interface InstanceKeyRow {
  public_key: string;
  name: string;
  pinned_at: number;
  /**
   * The actor that pinned the key. `registry`: the registry pinned it on first use, from the first checkpoint of that
   * name.
   */
  pinned_by: string;
  counts_from: number;
  /** End of the validity; null until an administrator sets it. */
  counts_to: number | null;
  confirmed_at: number | null;
  confirmed_by: string | null;
}

/** The newest checkpoint of a run. A run is the part of an access log that one process writes to one file. */
interface RunRow {
  /** The id of the run: the name of the instance, a slash and the name of the run. */
  origin: string;
  /** The name of the instance. */
  name: string;
  run_key: string;
  size: number;
  /** The signed checkpoint with the registry's receipt. */
  note: string;
  occasion: string;
  signed_at: number;
  began_at: number;
  received_at: number;
  /** When a checkpoint of this run (the log of one gateway process) was last appended to the checkpoint list. */
  listed_at: number;
  every_seconds: number;
  /** The origin (id) of the run that this run continues; null if it continues no run. */
  previous_run: string | null;
  /**
   * The origin (id) of the run that will continue this run, as its end checkpoint announces; null if no run is
   * announced.
   */
  next_run: string | null;
  /**
   * 1 if the search for silent runs must skip this run: a finding has reported it already, or it has ended and its next
   * run has arrived.
   */
  was_missed: Generated<number>;
}

/**
 * An accepted checkpoint that a newer one of the same run (log of one process) has replaced. A repeated submission of
 * it gets the same receipt.
 */
interface EarlierCheckpointRow {
  /** SHA-256 of the text that the gateway signed, in base64. */
  digest: string;
  received_at: number;
}

/** A checkpoint in the list, which is a leaf of the list's Merkle tree. */
interface CheckpointListRow {
  /** The index of the leaf, from 0. */
  seq: number;
  received_at: number;
  note: string;
}

/** The single row with the Merkle tree of the checkpoint list. */
interface CheckpointTreeRow {
  id: 1;
  size: number;
  /** Comma-separated root hashes of the tree's complete subtrees, in hex. */
  subtrees: string;
}

/** A problem that the witness (the part that checks checkpoints of access logs) has found. */
interface CheckpointFindingRow {
  id: string;
  found_at: number;
  kind: string;
  origin: string;
  message: string;
}

/** The tables of the registry. */
export interface RegistryTables
  extends EventTables, AdministratorTables, ApprovalTables, UsageTables, UnusualTables, ConsoleTables {
  merchants: MerchantRow;
  api_keys: KeyRow;
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
  sign_ins: SignInRow;
}
