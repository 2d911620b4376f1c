import { KeyStoreUnavailable } from '../../gateway/ports.js';
import type { InvalidationEvents } from './server/invalidation-listener.js';

/** Events that a gateway gets from its store. */
export interface LinkEvents extends InvalidationEvents {
  /** The store can be read, for the first time or again. */
  readonly onReady: () => void;
}

/** A gateway's connection to the record store: one server, or the masters of a Cluster. */
export interface RecordsLink {
  /** Whether all invalidation notices arrive. */
  readonly connected: boolean;
  /**
   * While this number is unchanged, no notice was missed and no connection was reopened: it leads to the same servers.
   */
  readonly epoch: number;
  /** The run ids of the connected servers, null for a server whose INFO omits it; null while they are unknown. */
  readonly servers: readonly (string | null)[] | null;
  /** The eviction policies (`maxmemory-policy`) of those servers, without duplicates, as far as INFO has them. */
  readonly policies: readonly string[];
  /** Why a part of the store cannot be read; null if all of it can. */
  readonly partLost: string | null;
  /** Reads the meta record and the newest revision, as texts. */
  readState(): Promise<readonly [meta: string | null, revision: string | null]>;
  /**
   * Determines which parts of the store contain every change up to the revision that was read before. The first check
   * of a Cluster can take seconds.
   * @param meta the meta record as it was read, and the generation that it names
   */
  checkParts(meta: string, generation: string): Promise<void>;
  /**
   * Resolves once the notices of all earlier changes have been handled. `masters`: and once every master has confirmed
   * the slot map.
   */
  catchUp(): Promise<void>;
  /**
   * The text of a record; null only if a store that was seeded with this generation does not have it.
   * @throws StoreUnseeded
   * @throws KeyStoreUnavailable if a known condition prevents reading this record now
   */
  read(name: string, generation: string): Promise<string | null>;
  /** A text as it is stored; null if it is missing. Rejects if Redis does not reply. */
  text(name: string): Promise<string | null>;
  /** Resolves once the notices of all earlier changes have been handled. Rejects if no notices arrive. */
  receiveNotices(): Promise<void>;
  /**
   * The names with this prefix, page by page. Includes every name that exists throughout the scan, perhaps more than
   * once.
   */
  names(prefix: string): AsyncGenerator<readonly string[]>;
  /**
   * The texts of some records; null for a missing record or a non-string value, undefined if the record cannot be read
   * now.
   */
  readSome(names: readonly string[]): Promise<readonly (string | null | undefined)[]>;
  /** Writes a text that expires after its lifetime. */
  write(text: AcknowledgementText): Promise<void>;
  /**
   * Writes an acknowledgement.
   * @returns the text of the grant, read after the write
   */
  acknowledge(acknowledgement: AcknowledgementText, grantName: string): Promise<string | null>;
  /**
   * What can prove that no other server has taken over. `none`: no proof is needed, no server can take over. `masters`:
   * each beat asks the Cluster's masters. `others`: sentinels or replicas must be queried.
   * @param replicas the number that the registry has seen
   */
  witness(replicas: number): 'none' | 'masters' | 'others';
  /** Whether sentinels or replicas prove that no other server had taken over when this was called. Never rejects. */
  confirm(acknowledgement: AcknowledgementText, replicas: number): Promise<boolean>;
  remove(name: string): Promise<void>;
  close(): void;
}

/** A text that a gateway writes about itself, such as an acknowledgement, and its lifetime. */
export interface AcknowledgementText {
  readonly name: string;
  readonly text: string;
  readonly lifetimeMilliseconds: number;
}

/** A record is missing, and the meta record, which shows that the store is complete, is missing too or has changed. */
export class StoreUnseeded extends KeyStoreUnavailable {
  constructor() {
    super('the store was not seeded during the whole read');
    this.name = 'StoreUnseeded';
  }
}
