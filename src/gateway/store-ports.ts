import type { FillingRecord, MetaRecord } from './records.js';
import type { Environment } from '../policy/key-format.js';

/**
 * The stored meta record, which describes the whole store. `generation` names an unbroken history of changes. It is
 * null if the record is invalid, or while the store is being refilled. During a refill, `filling` is the generation
 * that the registry is writing.
 */
export type StoredMeta =
  MetaRecord | { readonly generation: null; readonly filling?: string; readonly database?: string | undefined };

/** A record to write to the store. A null value deletes the record. */
export interface StoreEntry {
  /** `key:<lookupId>` or `merchant:<id>`. The adapter adds its prefix. */
  readonly name: string;
  readonly value: object | null;
}

/** The newest database change whose records are all in the store. */
export interface Position {
  readonly revision: number;
  /** Id of the change. After a restore of the database, two different changes can have the same revision. */
  readonly change: string;
}

/** The state of a store at one moment. */
export interface StoreSnapshot {
  /** Number that changes whenever another server may have taken over, or invalidation messages may have been lost. */
  readonly epoch: number;
  /**
   * Run ids of the Redis servers that store the records, in stable order. Empty if the Redis ACL denies the query for
   * these ids.
   */
  readonly servers: readonly string[];
  /** Number of replicas that a failover could promote; always 0 for a Cluster, where replicas are not counted. */
  readonly replicas: number;
  /** Null if the store is empty, or if an operator deleted the meta record to force a rewrite of all records. */
  readonly meta: StoredMeta | null;
  /** The newest published revision, which is the number of a change; 0 if it is missing or invalid. */
  readonly revision: number;
  /** Id of the newest published change; null if the store contains no such id. */
  readonly change: string | null;
  /** Whether the store has all changes; false if any of its servers was emptied or has lost changes. */
  readonly isWhole: boolean;
  /**
   * Which secret made the meta record's seal (HMAC): the `current` one, another `accepted` one, or an unknown one
   * (`other`). If no secret is configured, every seal is `other`. `none` means that there is no seal.
   */
  readonly seal: 'current' | 'accepted' | 'other' | 'none';
}

/** Memory limits and evictions of the Redis servers of a store. */
export interface StoreMemory {
  /** Distinct values of `maxmemory-policy`; empty if the servers do not report it. */
  readonly policies: readonly string[];
  /** How many Redis keys the servers have evicted since they started, including keys that are not records. */
  readonly evictedKeys: number;
  /** Sum of `maxmemory` in bytes; Infinity if a server has no limit. */
  readonly maxMemory: number;
}

/** A gateway as the store shows it: which changes it has acknowledged, and how long ago it gave a sign of life. */
export interface SeenGateway {
  readonly instanceId: string;
  /** Milliseconds since the gateway's last sign of life. Restarts at 0 if this process may have missed one. */
  readonly silentMilliseconds: number;
  /** How many milliseconds the gateway's clock is ahead of this process's clock; null if unknown. */
  readonly clockSkewMilliseconds: number | null;
  /** Which changes the gateway has applied; null if the acknowledgement is missing or invalid. */
  readonly acknowledgement: GatewayAcknowledgement | null;
  /** Whether the acknowledgement has a valid seal (HMAC); false if this process has no secret. */
  readonly isSealed: boolean;
}

/** A gateway's statement of which changes it has applied. Gateways of earlier releases omit the optional fields. */
interface GatewayAcknowledgement {
  readonly revision: number;
  readonly environment: Environment;
  readonly host: string;
  /** Start time of the gateway (ISO 8601). */
  readonly startedAt: string;
  /** The generation to which `revision` belongs. */
  readonly generation?: string | undefined;
  /** Sequence number of the gateway's latest heartbeat. */
  readonly beat?: number | undefined;
  /** Milliseconds of silence until the registry stops waiting. The gateway stops using its cache 1 s earlier. */
  readonly lifetimeMilliseconds?: number | undefined;
  readonly version?: string | undefined;
  /** Whether the gateway is shutting down and has decided its last request. */
  readonly leaving?: boolean | undefined;
}

/**
 * Part of a gateway's report: keys that are inactive or expire, and merchants that are inactive or not live. Gateways
 * report if the store may have lost changes: a restored database can lack a revocation that only gateways know.
 */
export interface InactiveReport {
  /** Redis key of the report, to be passed to `removeReports`. */
  readonly name: string;
  readonly instanceId: string;
  /** The generation (unbroken history of changes) that the gateway had seen last when it wrote the report. */
  readonly generation: string;
  /** Revision of the newest change that the gateway knew in this generation. */
  readonly revision: number;
  readonly entries: readonly StoreEntry[];
  /** Whether the report has a valid seal (HMAC); false if this process has no secret. */
  readonly isSealed: boolean;
}

/** The state of all gateways at one moment. */
export interface SeenGateways {
  /** As `StoreSnapshot.epoch`: changes when another server may have taken over, or messages may have been lost. */
  readonly epoch: number;
  /** Generation in the meta record. Null if that record is invalid, or does not list exactly the connected servers. */
  readonly generation: string | null;
  /** Whether the meta record, which describes the store, has a seal (HMAC) of an accepted secret. */
  readonly isSealed: boolean;
  /** Whether this process has handled all invalidation messages that Redis sent before this state was read. */
  readonly isFresh: boolean;
  readonly gateways: readonly SeenGateway[];
  /** Whether gateways may have written reports since the last time that all reports were read. */
  readonly hasReports: boolean;
}

/** A lease: the registry allows a gateway to use its cached records for a limited time. */
export interface GatewayGrant {
  readonly instanceId: string;
  readonly generation: string;
  /** Sequence number of the gateway's newest heartbeat that the registry has read. */
  readonly beat: number;
  readonly lifetimeMilliseconds: number;
  /** Whether the registry has compared the store with its database and found every record. */
  readonly compared?: boolean;
}

/** A record that differs between the store and the registry's database, or that is missing in one of them. */
export interface RecordDifference {
  readonly name: string;
  /** The value in the database; null if the database has no such record. */
  readonly value: object | null;
  readonly isStored: boolean;
  /** The value in the store; null if it is missing or not a JSON object. */
  readonly stored: object | null;
  /** Digest of the stored bytes; a fixed text if the record is missing. */
  readonly digest: string;
}

/** Records that a writer other than the registry may have changed. */
export interface ChangedRecords {
  readonly names: readonly string[];
  /** Whether other records may have changed too: the watch has just begun, or messages were lost or too numerous. */
  readonly isIncomplete: boolean;
}

/** Watches the store for record changes that this registry did not make. */
export interface WatchedRecords {
  /**
   * Takes up to `most` records that another writer may have changed. The first call starts the watch, which lasts until
   * `rest()` is called or invalidation messages are lost.
   */
  take(most: number): ChangedRecords;
  /** Whether all invalidation messages have arrived and been handled, and no changed record is left to take. */
  readonly isQuiet: boolean;
  /** Resolves when records have changed or invalidation messages were lost. The caller must then call `take`. */
  next(): Promise<void>;
  /** Pauses the watch until the next `take()`. Called while another registry is the writer. */
  rest(): void;
  /**
   * Compares stored records with their expected values, and returns the differences. If there are any, handles all
   * pending invalidation messages before it reads the `epoch` that it returns.
   */
  compare(
    entries: readonly StoreEntry[],
    generation: string,
  ): Promise<{ readonly epoch: number; readonly differences: readonly RecordDifference[] }>;
  /**
   * Writes the expected values. On a single server, rejects if another registry has become the writer. In a Cluster,
   * skips each record that was changed after `compare`.
   */
  repair(differences: readonly RecordDifference[], generation: string): Promise<void>;
}

/**
 * The registry's interface to the store that gateways read. Every promise except `nextAcknowledgement()` settles within
 * the adapter's timeout, and rejects if the store is unavailable. A write that rejects may still have been executed.
 */
export interface RecordsStore {
  /** Whether the store is this process's memory. If so, no gateway caches its records, so no record becomes stale. */
  readonly endsWithProcess: boolean;
  /**
   * Public ids of the accepted secrets for seals; the first secret seals new records. Empty if records are not sealed.
   */
  readonly sealIds: readonly string[];
  /** Whether a failover can promote a replica without the registry's involvement. */
  readonly canFailOver: boolean;
  /** The watch for changes by other writers; null if no other process can write to the store. */
  readonly watched: WatchedRecords | null;
  /** The receiver of record requests from gateways; null if gateways do not request records from the registry. */
  readonly inbox: RecordInbox | null;
  /**
   * Reads the store's state. With Sentinel, rejects unless a majority of the sentinels names the connected server as
   * the master. In a Cluster, rejects unless all masters confirm the slot map.
   */
  snapshot(): Promise<StoreSnapshot>;
  /** Returns memory limits and evictions; null for a store without limits. */
  memory(): Promise<StoreMemory | null>;
  /** Makes this registry the writer. On a single server, the previous writer can no longer publish. */
  begin(): Promise<void>;
  /**
   * Writes all entries, in several commands if there are too many for one. If the promise rejects, some entries could
   * already be written. Never overwrites a stored record whose revision is higher than `change`.
   * @param change the revision of the newest change among the entries
   * @param generation the generation of the entries
   * @returns the highest revision among the stored records that were not overwritten; 0 if all entries were written
   */
  write(entries: readonly StoreEntry[], change: number, generation: string): Promise<number>;
  /**
   * Like `write`, but for records that did not change in the database, for example to give them a new seal. In a
   * Cluster, `write` also stores the newest revision of each changed hash slot, but `rewrite` does not.
   * @param revision stored records up to this revision are replaced
   */
  rewrite(entries: readonly StoreEntry[], revision: number, generation: string): Promise<number>;
  /**
   * Announces to gateways that all records up to `position` are written. Gateways then acknowledge this position. On
   * a single server, rejects if the server changed or lost writes since `begin()`, as after a failover. In a Cluster,
   * rejects if a later revision was published.
   */
  publish(position: Position): Promise<void>;
  /**
   * Writes the meta record, which marks the store as complete. All records up to `position` must have been written
   * since `begin()`. Rejects if a server of the store was replaced, or has lost writes, since `begin()`.
   */
  complete(meta: MetaRecord, position: Position): Promise<void>;
  /**
   * Marks an emptied store as being refilled, so that gateways request missing records from the registry. Absent if the
   * gateways of this store wait until the store is complete. Rejects like `publish`.
   */
  fill?(meta: FillingRecord): Promise<void>;
  /**
   * Lists each gateway that has an acknowledgement or is in the roster, in all environments.
   * @param roster the instance ids of the gateways that the registry knows
   */
  gateways(roster: readonly string[]): Promise<SeenGateways>;
  /** Resolves when any gateway next acknowledges a change; never for a store that does not report acknowledgements. */
  nextAcknowledgement(): Promise<void>;
  grant(grants: readonly GatewayGrant[]): Promise<void>;
  /** Deletes the leases (see `GatewayGrant`) of these gateways, then their acknowledgements. */
  removeGateways(instanceIds: readonly string[]): Promise<void>;
  /** Iterates over the reports of inactive keys and merchants. Skips invalid reports. */
  reports(): AsyncIterable<InactiveReport>;
  /** Deletes reports by `InactiveReport.name`. */
  removeReports(names: readonly string[]): Promise<void>;
  /** Reads stored records in the order of the names. The value is null if a record is missing or not JSON. */
  read(names: readonly string[]): Promise<readonly StoreEntry[]>;
  /**
   * Iterates over the names with a prefix. Names that are created or deleted meanwhile can be missing, and a name can
   * occur twice.
   */
  names(prefix: string): AsyncIterable<string>;
}

/** The time, in milliseconds since 1970. */
export interface Clock {
  now(): number;
}

/** Schedules callbacks, as setTimeout does. */
export interface Timers {
  /** @returns a function that cancels the timer */
  after(milliseconds: number, act: () => void): () => void;
}

/** The registry's log, for example a pino logger. */
export interface Logger {
  error(details: object, message: string): void;
  warn(details: object, message: string): void;
  info(details: object, message: string): void;
}

/** A gateway's request for a record that it did not find in the store. */
export interface RecordRequest {
  /** Key under which the request is stored. The reply is stored under the same key. */
  readonly name: string;
  /** Name of the requested record, as in `StoreEntry`. */
  readonly record: string;
}

/** Receives the gateways' requests for records that they did not find in the store. */
export interface RecordInbox {
  /** Called when requests have arrived. */
  onWork: () => void;
  /** Takes up to `most` requests. Each request is returned at most once; an expired request is dropped. */
  take(most: number): readonly RecordRequest[];
  /**
   * Replies to requests.
   * @param present names of the records that were written again; the other requested records do not exist
   * @param generation the generation in which the records were written
   */
  reply(asks: readonly RecordRequest[], present: ReadonlySet<string>, generation: string): Promise<void>;
}
