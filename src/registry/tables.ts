import type { Generated } from '../database/kysely.js';
import type { Environment } from '../policy/key-format.js';

// Moments are milliseconds since 1970, lists and snapshots are JSON texts, and a truth is 1 or 0: SQLite has neither.

interface MerchantRow {
  id: string;
  name: string;
  status: string;
  go_live: number;
  ip_allowlist: string | null;
  origin_allowlist: string | null;
  /** The change that made it: the order of creation, which a clock does not tell within a millisecond. */
  created_revision: number;
  /** The newest change. */
  revision: number;
  created_at: number;
  updated_at: number;
}

interface KeyRow {
  key_id: string;
  merchant_id: string;
  /** All that is kept of the key itself. */
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

/** A record that has yet to be written to the store, because of the change of this number. */
interface OutboxRow {
  revision: number;
  name: string;
  /** The name of that change; null where an earlier release made it. */
  change: Generated<string | null>;
}

/** The one row that every change counts up. */
interface RevisionRow {
  id: 1;
  value: number;
  /** Which history this is: a store with another one's records is filled anew. */
  generation: string;
  /** The run ids of the servers that were last compared with this database, apart by commas; null: they are to be. */
  servers: Generated<string | null>;
  /** 0 while a gateway may use records of which this database does not know. */
  is_open: Generated<number>;
  /** When that ends; null where it is not known yet, or has ended. */
  opens_at: Generated<number | null>;
  /** The newest change that was published in this generation. */
  published_revision: Generated<number>;
  published_change: Generated<string | null>;
  /** The names of the secrets that every record is sealed with, one of them, apart by commas; null: some may be unsealed. */
  sealed_by: Generated<string | null>;
  /** The published change for which that holds: an earlier release publishes, and seals nothing. */
  sealed_change: Generated<string | null>;
}

/** The roster: a gateway that may use what it holds. */
interface GatewayRow {
  instance_id: string;
  host: string;
  environment: Environment;
  /** Null for a gateway of an earlier release, which does not say. */
  version: string | null;
  first_seen: number;
  /** From when on it can hold nothing, counted from the last sign of life. */
  lifetime_milliseconds: number;
  /** The change that put it here. */
  revision: number;
  /** 1 where it was seen to seal what it acknowledges: then nothing else is believed of it. */
  seals: Generated<number>;
}

/** A history that this database had before, and whose records a store may still have. */
interface FormerGenerationRow {
  generation: string;
}

/** A time after which this database may lack changes. */
interface RestoreRow {
  seq: Generated<number>;
  found_at: number;
  /** The newest moment that the database knew of; null where it knew of none. */
  newest_at: number | null;
  /** 1 where somebody knew a change that the database lacks; 0 where nobody is left who could know one. */
  is_certain: number;
}

/** A key or merchant that is inactive because somebody knew it as inactive under a later revision than the restored database. */
interface HeldBackRow {
  /** Of the key or the merchant. */
  id: string;
  kind: 'key' | 'merchant';
  merchant_id: string;
  /** Who knew: `store`, or the instance id of a gateway. */
  source: string;
  /** What the restored database says, as JSON: the columns that were changed. */
  was: string;
  found_at: number;
}

/** The one row that says which process projects. It changes each time the lease is prolonged; 0: it was given up. */
interface ProjectorRow {
  id: 1;
  holder: string;
  lease_ends_at: number;
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
}
