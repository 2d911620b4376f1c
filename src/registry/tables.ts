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
   * merchants can have the same `created_at`.
   */
  created_revision: number;
  /** Revision (number) of the newest change of the merchant. */
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

/**
 * A row of the outbox, the list of records that have changed in the database and have yet to be written to the store.
 */
interface OutboxRow {
  revision: number;
  name: string;
  /** The id of the change. Null if an earlier release made the change, or if `Lease.finish` put the row back. */
  change: Generated<string | null>;
}

/**
 * The single row with the revision (number of the newest change) and the state of the store. Each change that gateways
 * have to know increments the revision.
 */
interface RevisionRow {
  id: 1;
  value: number;
  /**
   * The id of the current generation. The registry starts a new generation each time it rewrites the whole store. If
   * the store has the id of another generation, the registry rewrites all records.
   */
  generation: string;
  /**
   * Comma-separated run ids (`run_id`) of the Redis servers that were last found consistent with this database; null
   * before the first comparison.
   */
  servers: Generated<string | null>;
  /**
   * 0 while a gateway that is not in the table `gateways` could use cached records, otherwise 1. While it is 0, no
   * change counts as confirmed by all gateways.
   */
  is_open: Generated<number>;
  /** When `is_open` becomes 1. Null if this time is unknown, or if `is_open` is already 1. */
  opens_at: Generated<number | null>;
  /**
   * Revision (number) of the newest change that was announced to gateways in the current generation; 0 before the first
   * announcement.
   */
  published_revision: Generated<number>;
  /** The id of the change with the revision `published_revision`; null before the first announcement. */
  published_change: Generated<string | null>;
  /**
   * Comma-separated ids of secrets. Each record in the store is sealed (authenticated) with one of these secrets. Null
   * if some records are possibly not sealed.
   */
  sealed_by: Generated<string | null>;
  /**
   * The value of `published_change` for which `sealed_by` is valid. An earlier release does not seal (authenticate) the
   * records of a change that it publishes, and sets only `published_change`. So if `published_change` differs from
   * `sealed_change`, `sealed_by` is not valid.
   */
  sealed_change: Generated<string | null>;
}

/**
 * A gateway in the roster, the list of gateways that are allowed to use cached records. A change is confirmed when
 * every gateway in the roster has acknowledged it.
 */
interface GatewayRow {
  instance_id: string;
  host: string;
  environment: Environment;
  /** The version of the gateway; null for a gateway of an earlier release, which does not report its version. */
  version: string | null;
  first_seen: number;
  /** How long the gateway is allowed to use cached records after its last heartbeat. */
  lifetime_milliseconds: number;
  /** Revision (number) of the change that added the gateway. */
  revision: number;
  /**
   * 1 after the gateway has sent a sealed (authenticated) acknowledgement, otherwise 0. While it is 1, unsealed
   * acknowledgements of this gateway are rejected, because any client of the store could forge them.
   */
  seals: Generated<number>;
}

/**
 * The id of an earlier generation. This database starts a new generation each time it rewrites the whole store. A store
 * with the id of an earlier generation, for example one restored from a backup, belongs to this database too.
 */
interface FormerGenerationRow {
  generation: string;
}

/**
 * A certain or possible restore of this database from a backup. Changes that were made between `newest_at` and
 * `found_at` could be missing.
 */
interface RestoreRow {
  seq: Generated<number>;
  found_at: number;
  /** Time of the newest event in the restored database; null if it had no events. */
  newest_at: number | null;
  /**
   * 1 if the store or a gateway has a change that the database lacks; 0 if neither has such a change, so the database
   * could be complete.
   */
  is_certain: number;
}

/**
 * A key or merchant that the registry restricted after a restore of the database. The reason: the record in the store
 * or in a gateway has fewer rights than the database, because of a change that the database lacks.
 */
interface HeldBackRow {
  /** The id of the key or the merchant. */
  id: string;
  kind: 'key' | 'merchant';
  merchant_id: string;
  /** Where the record with fewer rights was found: `store`, or the instance id of a gateway. */
  source: string;
  /** The values of the changed columns before the restriction, as JSON. */
  was: string;
  found_at: number;
}

/**
 * The single row with the lease. The holder of the lease is the only process that is allowed to write records to the
 * store. Each renewal changes `lease_ends_at`; 0 means that the lease was released.
 */
interface ProjectorRow {
  id: 1;
  holder: string;
  lease_ends_at: number;
}

/**
 * A public key of an instance (gateway), and the period in which the key is valid. The key verifies checkpoints, the
 * signed states of the instance's access log.
 */
interface InstanceKeyRow {
  public_key: string;
  name: string;
  pinned_at: number;
  /**
   * The actor that pinned the key, that is, stored it as valid. `registry`: the registry itself pinned the key, because
   * the first checkpoint of this instance was signed with it.
   */
  pinned_by: string;
  counts_from: number;
  /** End of the key's validity; null until an administrator sets it. */
  counts_to: number | null;
  confirmed_at: number | null;
  confirmed_by: string | null;
}

/**
 * The newest checkpoint (signed state) of a run. A run is the part of an access log that one process writes to one
 * file.
 */
interface RunRow {
  /** The id of the run: the name of the instance, a slash and the name of the run. */
  origin: string;
  /** The name of the instance (gateway). */
  name: string;
  run_key: string;
  size: number;
  /** The signed checkpoint with the registry's receipt, a signature that proves its acceptance. */
  note: string;
  occasion: string;
  signed_at: number;
  began_at: number;
  received_at: number;
  /** When a checkpoint of this run was last appended to the checkpoint list. */
  listed_at: number;
  every_seconds: number;
  /** The origin (id) of the run that this run continues; null if this run continues no other run. */
  previous_run: string | null;
  /**
   * The origin (id) of the run that will continue this run, according to the end checkpoint of this run. Null if the
   * end checkpoint announces no run, or has not arrived.
   */
  next_run: string | null;
  /**
   * Silent runs are runs whose checkpoints have stopped. 1 if the search for silent runs must skip this run: a finding
   * exists already, or the run has ended and its next run has begun. Otherwise 0.
   */
  was_missed: Generated<number>;
}

/**
 * An accepted checkpoint that a newer checkpoint of the same run has replaced. If a gateway submits the replaced
 * checkpoint again, the gateway gets the same receipt (proof of acceptance).
 */
interface EarlierCheckpointRow {
  /** SHA-256 of the text that the gateway signed, in base64. */
  digest: string;
  received_at: number;
}

/**
 * An entry of the checkpoint list: one checkpoint (signed state of an access log). Each entry is a leaf of the list's
 * Merkle tree.
 */
interface CheckpointListRow {
  /** The index of the leaf, from 0. */
  seq: number;
  received_at: number;
  note: string;
}

/** The single row with the Merkle tree of the list of checkpoints (signed states of access logs). */
interface CheckpointTreeRow {
  id: 1;
  size: number;
  /** Comma-separated root hashes of the tree's complete subtrees, in hex. */
  subtrees: string;
}

/** A problem that the witness has found. The witness is the part of the registry that checks checkpoints. */
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
