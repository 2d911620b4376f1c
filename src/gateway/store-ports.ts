import type { FillingRecord, MetaRecord } from './records.js';
import type { Environment } from '../policy/key-format.js';

/**
 * The meta record as stored. `generation` is null if the record is damaged or has an unknown layout, or while the store
 * is being filled; `filling` is then the generation being filled.
 */
export type StoredMeta =
  MetaRecord | { readonly generation: null; readonly filling?: string; readonly database?: string | undefined };

/** A record to write to the store; a null value deletes it. */
export interface StoreEntry {
  /** `key:<lookupId>` or `merchant:<id>`; the adapter adds its prefix. */
  readonly name: string;
  readonly value: object | null;
}

/** The store's position: revision and name of the newest change whose records it has. */
export interface Position {
  readonly revision: number;
  /** Name of the change. Two changes can share a revision after a database restore from a backup. */
  readonly change: string;
}

/** Snapshot of a store's state. */
export interface StoreSnapshot {
  /** Changes when the connections may lead to another server or when notices may have been missed. */
  readonly epoch: number;
  /** Run ids of the servers that hold the records, in stable order; empty if the user may not query them. */
  readonly servers: readonly string[];
  /** Number of replicas that could be promoted. */
  readonly replicas: number;
  /**
   * Null if missing: the store has no records, or an operator deleted the meta record to force a rewrite of all
   * records.
   */
  readonly meta: StoredMeta | null;
  /** Newest published revision; 0 if missing or invalid. */
  readonly revision: number;
  /** Name of the change of `revision`; null if the store does not name it. */
  readonly change: string | null;
  /** False if a part of the store was emptied or lost changes. */
  readonly isWhole: boolean;
  /**
   * Seal of the meta record: by the current, another accepted or an unknown secret (`other`), or none. Without a
   * configured secret, every seal is `other`.
   */
  readonly seal: 'current' | 'accepted' | 'other' | 'none';
}

/** Memory limits and evictions of a store's servers. */
export interface StoreMemory {
  /** Distinct values of `maxmemory-policy`; empty if the servers do not report it. */
  readonly policies: readonly string[];
  /** Keys that the servers have evicted since their start, records and other keys. */
  readonly evictedKeys: number;
  /** Sum of `maxmemory` in bytes; Infinity if a server has no limit. */
  readonly maxMemory: number;
}

/** A gateway's acknowledgement and when notices of it arrived. */
export interface SeenGateway {
  readonly instanceId: string;
  /**
   * Milliseconds since the last notice of the gateway, on this process's clock; counted anew if notices may have been
   * missed.
   */
  readonly silentMilliseconds: number;
  /** How far the gateway's clock is ahead of this process's clock, in milliseconds; null if unknown. */
  readonly clockSkewMilliseconds: number | null;
  /** Null if missing or invalid. */
  readonly acknowledgement: GatewayAcknowledgement | null;
  /**
   * Whether the acknowledgement is sealed by a gateway with the secret for records; false if this process has no
   * secret.
   */
  readonly isSealed: boolean;
}

/** A gateway's acknowledgement. Gateways of earlier releases leave the optional fields undefined. */
interface GatewayAcknowledgement {
  readonly revision: number;
  readonly environment: Environment;
  readonly host: string;
  /** ISO 8601. */
  readonly startedAt: string;
  /** The history to which the revision belongs. */
  readonly generation?: string | undefined;
  /** Number of the gateway's heartbeat. */
  readonly beat?: number | undefined;
  /** How long the gateway may use its cached records, plus one second, in milliseconds. */
  readonly lifetimeMilliseconds?: number | undefined;
  readonly version?: string | undefined;
  /** Set once the gateway has decided its last request. */
  readonly leaving?: boolean | undefined;
}

/** Part of a gateway's list of inactive keys and merchants, written after the store had lost them. */
export interface InactiveReport {
  /** Name for `removeReports`. */
  readonly name: string;
  readonly instanceId: string;
  /** The gateway's last known history; `revision` is its last known change. */
  readonly generation: string;
  readonly revision: number;
  readonly entries: readonly StoreEntry[];
  /** Whether the report is sealed by a gateway with the secret for records; false if this process has no secret. */
  readonly isSealed: boolean;
}

/** Snapshot of all gateways. */
export interface SeenGateways {
  /** Same meaning as in `StoreSnapshot`. */
  readonly epoch: number;
  /** Generation in the meta record; null if the meta record does not name the store's servers. */
  readonly generation: string | null;
  /** Whether an accepted secret seals the meta record. */
  readonly isSealed: boolean;
  /** Whether all notices sent before this query have been processed. */
  readonly isFresh: boolean;
  readonly gateways: readonly SeenGateway[];
  /** Whether gateways may have written reports since all reports were last read. */
  readonly hasReports: boolean;
}

/** A lease by which the registry lets a gateway use its cached records. */
export interface GatewayGrant {
  readonly instanceId: string;
  readonly generation: string;
  /** The gateway's newest heartbeat that the registry has read. */
  readonly beat: number;
  readonly lifetimeMilliseconds: number;
  /** Whether the store has every record, as far as the registry knows. */
  readonly compared?: boolean;
}

/** A stored record that differs from the database. */
export interface RecordDifference {
  readonly name: string;
  /** The expected value; null: the database does not have this name. */
  readonly value: object | null;
  readonly isStored: boolean;
  /** The stored value; null if missing or not a JSON object. */
  readonly stored: object | null;
  /** Digest of the stored bytes. */
  readonly digest: string;
}

/** Records that another writer may have changed. */
export interface ChangedRecords {
  readonly names: readonly string[];
  /** More records may have changed: notices were lost or too numerous. */
  readonly isIncomplete: boolean;
}

/** Watches a store's records for changes that the registry did not make. */
export interface WatchedRecords {
  /**
   * Takes up to `most` records that another writer may have changed. The first call starts the watch, which lasts until
   * `rest()` or until notices are lost.
   */
  take(most: number): ChangedRecords;
  /** Whether no changed records are pending and no notice was lost or awaits processing. */
  readonly isQuiet: boolean;
  /** Resolves when records can be taken next. */
  next(): Promise<void>;
  /** Pauses the watch until the next `take()`, because another registry writes. */
  rest(): void;
  /** Compares stored records with their expected values. `epoch` is the store's epoch after all pending notices. */
  compare(
    entries: readonly StoreEntry[],
    generation: string,
  ): Promise<{ readonly epoch: number; readonly differences: readonly RecordDifference[] }>;
  /** Writes the expected values. Rejects, on a single server, if another registry has become the writer. */
  repair(differences: readonly RecordDifference[], generation: string): Promise<void>;
}

/**
 * The registry's interface to the store that gateways read. Each promise settles within the adapter's timeout and
 * rejects if the store is unavailable. A rejected write may still have taken effect.
 */
export interface RecordsStore {
  /**
   * Whether the only gateway runs in this process and caches nothing; then no gateway can be missing from the roster.
   */
  readonly endsWithProcess: boolean;
  /**
   * Ids of the secrets that seal records, which reveal nothing about them. The first seals, all are accepted. Empty: no
   * seals.
   */
  readonly sealIds: readonly string[];
  /** Whether a replica can be promoted without the registry. */
  readonly canFailOver: boolean;
  /** Null if no other process can write to the store. */
  readonly watched: WatchedRecords | null;
  /** Null if gateways do not request records. */
  readonly inbox: RecordInbox | null;
  /**
   * Reads the store's state. Rejects unless a majority of the sentinels, or of a Cluster's masters, names the connected
   * server.
   */
  snapshot(): Promise<StoreSnapshot>;
  /** Memory limits and evictions; null for a store without limits. */
  memory(): Promise<StoreMemory | null>;
  /** Becomes the writer. On a single server this fences off the previous writer, which can publish nothing more. */
  begin(): Promise<void>;
  /**
   * Writes all entries; a rejection may leave some of them written. The adapter splits batches that are too large for
   * one command. Stored records of a later change are not overwritten.
   * @param change the revision of the newest change among the entries
   * @param generation the history of the entries
   * @returns the highest revision of a record that was not overwritten; 0 if all were
   */
  write(entries: readonly StoreEntry[], change: number, generation: string): Promise<number>;
  /**
   * Like `write`, for unchanged records that are rewritten. @param revision replaces stored records up to this revision
   */
  rewrite(entries: readonly StoreEntry[], revision: number, generation: string): Promise<number>;
  /**
   * Announces to gateways that every record up to this change is written; they then acknowledge it. On a single server,
   * rejects if the server changed or lost writes since `begin()`, as after a failover. In a Cluster, rejects if a later
   * revision was published.
   */
  publish(position: Position): Promise<void>;
  /**
   * Marks the store as complete: all records were written since `begin()`, up to this change. Writes the meta record
   * last. Rejects if a part of the store has changed servers or lost writes since `begin()`.
   */
  complete(meta: MetaRecord, position: Position): Promise<void>;
  /**
   * Marks the store as being filled after it was emptied, so gateways request the records that they need. Absent for a
   * store whose gateways wait until it is complete. Rejects like `publish`.
   */
  fill?(meta: FillingRecord): Promise<void>;
  /**
   * Lists every gateway, in any environment, that has an acknowledgement or is in the roster.
   * @param roster the instance ids of the gateways in the roster
   */
  gateways(roster: readonly string[]): Promise<SeenGateways>;
  /**
   * Resolves at the next notice of a gateway, which may be an acknowledgement. Never resolves for a store without
   * notices.
   */
  nextAcknowledgement(): Promise<void>;
  grant(grants: readonly GatewayGrant[]): Promise<void>;
  /** Deletes the grants of gateways, then their acknowledgements. */
  removeGateways(instanceIds: readonly string[]): Promise<void>;
  /** Iterates over the reports of inactive keys and merchants; skips invalid reports. */
  reports(): AsyncIterable<InactiveReport>;
  /** Deletes reports by `InactiveReport.name`. */
  removeReports(names: readonly string[]): Promise<void>;
  /** Reads stored records in the order of the names; null for a record that is missing or not JSON. */
  read(names: readonly string[]): Promise<readonly StoreEntry[]>;
  /**
   * Iterates over names with a prefix. Names created or deleted meanwhile may be missing, and a name may occur twice.
   */
  names(prefix: string): AsyncIterable<string>;
}

/** The time, in milliseconds since 1970. */
export interface Clock {
  now(): number;
}

/** Schedules callbacks. */
export interface Timers {
  /** @returns a function that cancels the timer */
  after(milliseconds: number, act: () => void): () => void;
}

/** The registry's log, such as a pino logger. */
export interface Logger {
  error(details: object, message: string): void;
  warn(details: object, message: string): void;
  info(details: object, message: string): void;
}

/** A gateway's request for a record that it did not find in the store. */
export interface RecordRequest {
  /** Name of the request, to reply to. */
  readonly name: string;
  /** Name of the record, as in `StoreEntry`. */
  readonly record: string;
}

/** Requests of gateways for records that they did not find. */
export interface RecordInbox {
  /** Called when requests have arrived. */
  onWork: () => void;
  /** Takes up to `most` requests; each request is returned once. */
  take(most: number): readonly RecordRequest[];
  /**
   * Replies to requests.
   * @param present names of the records that were written again; the other records do not exist
   * @param generation the generation in which they were written
   */
  reply(asks: readonly RecordRequest[], present: ReadonlySet<string>, generation: string): Promise<void>;
}
