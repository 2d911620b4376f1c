import type { Generated } from 'kysely';
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
}

/** The one row that every change counts up. */
interface RevisionRow {
  id: 1;
  value: number;
  /** Which history this is: a store with another one's records is filled anew. */
  generation: string;
}

/** A history that this database had before, and whose records a store may still have. */
interface FormerGenerationRow {
  generation: string;
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
  projector: ProjectorRow;
}
