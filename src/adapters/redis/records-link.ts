import { KeyStoreUnavailable } from '../../gateway/key-store.js';
import type { InvalidationEvents } from './server/invalidation-listener.js';

/** Events of a gateway's connection to the record store. */
export interface LinkEvents extends InvalidationEvents {
  /** Called when the store has become readable, for the first time or again. */
  readonly onReady: () => void;
}

/**
 * A gateway's connection to the record store: one server, or the masters of a Cluster. The store's meta record
 * describes the store and names its generation, which is one unbroken history of changes.
 */
export interface RecordsLink {
  /** Whether all invalidation messages arrive. */
  readonly connected: boolean;
  /**
   * A number that changes when an invalidation message may have been missed, or when a connection may lead to another
   * server.
   */
  readonly epoch: number;
  /**
   * The run ids of the connected servers. An element is null if INFO omits the run id. The array is null while the
   * servers are unknown.
   */
  readonly servers: readonly (string | null)[] | null;
  /**
   * The eviction policies (`maxmemory-policy`) of the connected servers, without duplicates, as far as INFO contains
   * them.
   */
  readonly policies: readonly string[];
  /** Why a part of the store cannot be read; null if all of it can be read. */
  readonly partLost: string | null;
  /** Reads the texts of the meta record and of the newest revision. A revision is the number of a change. */
  readState(): Promise<readonly [meta: string | null, revision: string | null]>;
  /**
   * Determines which parts of the store contain every change up to the revision that `readState` has returned. The
   * first check of a Cluster can take seconds.
   * @param meta the text of the meta record
   * @param generation the generation that the meta record names
   */
  checkParts(meta: string, generation: string): Promise<void>;
  /**
   * Resolves once the invalidation messages for all earlier changes have been handled and, in a Cluster, every master
   * has confirmed the slot map.
   */
  catchUp(): Promise<void>;
  /**
   * Reads the text of a record. Null only if the record does not exist and the store still has this generation.
   * @throws StoreUnseeded if the record is missing, but the store may be incomplete
   * @throws KeyStoreUnavailable if a known condition prevents reading this record now
   */
  read(name: string, generation: string): Promise<string | null>;
  /**
   * Reads the text under this Redis key without checking that the store is complete; null if the key is missing.
   * Rejects if Redis does not reply.
   */
  text(name: string): Promise<string | null>;
  /**
   * Resolves once the invalidation messages for all earlier changes have been handled. Rejects while invalidation
   * messages cannot arrive. Unlike `catchUp`, does not check the slot map of a Cluster.
   */
  receiveNotices(): Promise<void>;
  /**
   * Scans for the Redis keys with this prefix, page by page. Every key that exists throughout the scan is included,
   * perhaps more than once.
   */
  names(prefix: string): AsyncGenerator<readonly string[]>;
  /**
   * Reads the texts of some records. An element is null if the record is missing or its value is not a string. An
   * element is undefined if the record cannot be read now.
   */
  readSome(names: readonly string[]): Promise<readonly (string | null | undefined)[]>;
  /** Writes a query or a report to Redis, with an expiry (PX). An acknowledgement is written with `acknowledge`. */
  write(text: AcknowledgementText): Promise<void>;
  /**
   * Writes an acknowledgement, which states the newest change that the gateway has applied. At the same time, reads the
   * grant, which is the gateway's lease for its cache.
   * @returns the text of the grant; null if there is no grant
   */
  acknowledge(acknowledgement: AcknowledgementText, grantName: string): Promise<string | null>;
  /**
   * Returns what must prove that no other server has taken over:
   * - `none`: no proof is needed, because no server can take over.
   * - `masters`: no further query is needed, because each heartbeat already queries the masters of the Cluster.
   * - `others`: sentinels or replicas must be queried.
   * @param replicas the number of replicas that the registry has seen
   */
  witness(replicas: number): 'none' | 'masters' | 'others';
  /**
   * Whether sentinels or replicas prove that no other server had taken over before this call. Never rejects.
   * @param acknowledgement the text that the replicas must receive as proof; not used with Sentinel or in a Cluster
   * @param replicas the number of replicas that the registry has seen
   */
  confirm(acknowledgement: AcknowledgementText, replicas: number): Promise<boolean>;
  /**
   * Reconnects if most sentinels name another server as the master. Called in place of `confirm` while the state of the
   * server is not trusted. Never rejects. Absent for a Cluster.
   */
  followSentinels?(): Promise<void>;
  remove(name: string): Promise<void>;
  close(): void;
}

/**
 * A text with an expiry, such as an acknowledgement of changes or a query: its Redis key, its content and its lifetime.
 */
export interface AcknowledgementText {
  readonly name: string;
  readonly text: string;
  readonly lifetimeMilliseconds: number;
}

/**
 * Thrown when a record is missing but the store may be incomplete, because the meta record is also missing or has
 * changed.
 */
export class StoreUnseeded extends KeyStoreUnavailable {
  constructor() {
    super('the store was emptied or rebuilt during the read');
    this.name = 'StoreUnseeded';
  }
}
