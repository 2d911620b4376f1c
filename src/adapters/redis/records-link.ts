import { KeyStoreUnavailable } from '../../gateway/ports.js';
import type { InvalidationEvents } from './invalidation-listener.js';

/** What a gateway hears from its store. */
export interface LinkEvents extends InvalidationEvents {
  /** It can be asked, or asked again. */
  readonly onReady: () => void;
}

/** How a gateway reaches the store of records: one server, or the masters of a Cluster. */
export interface RecordsLink {
  /** Whether every change is heard. */
  readonly hearing: boolean;
  /** Between two looks at the same number nothing was missed. */
  readonly epoch: number;
  /** What is wrong with a part of the store, about which nothing is answered; null where nothing is. */
  readonly partLost: string | null;
  /** The meta record and the newest revision, as texts. */
  readState(): Promise<readonly [meta: string | null, revision: string | null]>;
  /**
   * Resolves when every notice has been heard of what was changed before, and the store is known to hold those changes.
   * @param meta the meta record as it was read, and the generation that it names
   */
  catchUp(meta: string, generation: string): Promise<void>;
  /**
   * The text of a record; null only if a store that was seeded with this generation does not have it.
   * @throws StoreUnseeded
   * @throws KeyStoreUnavailable where it is known why nothing can be said about this record now
   */
  read(name: string, generation: string): Promise<string | null>;
  /** Writes what ends by itself after some time. */
  put(name: string, text: string, lifetimeMilliseconds: number): Promise<void>;
  remove(name: string): Promise<void>;
  close(): void;
}

/** A record is missing, and so is, or has changed, what says that the store is complete. */
export class StoreUnseeded extends KeyStoreUnavailable {
  constructor() {
    super('the store was not seeded all the while');
    this.name = 'StoreUnseeded';
  }
}
