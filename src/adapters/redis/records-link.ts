import { KeyStoreUnavailable } from '../../gateway/ports.js';
import type { InvalidationEvents } from './server/invalidation-listener.js';

/** What a gateway hears from its store. */
export interface LinkEvents extends InvalidationEvents {
  /** It can be asked, or asked again. */
  readonly onReady: () => void;
}

/** How a gateway reaches the store of records: one server, or the masters of a Cluster. */
export interface RecordsLink {
  /** Whether every change is heard. */
  readonly hearing: boolean;
  /** Between two looks at the same number nothing was missed, and no connection was opened anew: it leads to the same servers. */
  readonly epoch: number;
  /** The run ids of the servers that it leads to, null for one that does not say; null while they are not known. */
  readonly servers: readonly (string | null)[] | null;
  /** What those servers do when they are full, without repetition, as far as they say. */
  readonly policies: readonly string[];
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
  /** A text as it is stored; null for one that is not there. Rejects for no answer. */
  text(name: string): Promise<string | null>;
  /** Resolves when every notice has been heard of what was changed before. Rejects where it cannot be heard. */
  heard(): Promise<void>;
  /** The names of records that begin so, some at a time. One that is there all the while is among them, perhaps more than once. */
  names(prefix: string): AsyncGenerator<readonly string[]>;
  /** The texts of some records; null for one that is not there or is no text, undefined where nothing can be said about it now. */
  readSome(names: readonly string[]): Promise<readonly (string | null | undefined)[]>;
  /** Writes a text, which ends by itself after some time. */
  write(text: AcknowledgementText): Promise<void>;
  /**
   * Writes an acknowledgement.
   * @returns the text of the grant, as it was after that
   */
  acknowledge(acknowledgement: AcknowledgementText, grantName: string): Promise<string | null>;
  /**
   * What shows that no other server has taken its place: none can; or its masters, which confirm that in each beat; or others,
   * who have to be asked.
   * @param replicas how many the registry has seen
   */
  witness(replicas: number): 'none' | 'masters' | 'others';
  /** Whether others show that no server had taken its place when this was called. Never rejects. */
  confirm(acknowledgement: AcknowledgementText, replicas: number): Promise<boolean>;
  remove(name: string): Promise<void>;
  close(): void;
}

/** What a gateway writes of itself, an acknowledgement say, and for how long it stands. */
export interface AcknowledgementText {
  readonly name: string;
  readonly text: string;
  readonly lifetimeMilliseconds: number;
}

/** A record is missing, and so is, or has changed, what says that the store is complete. */
export class StoreUnseeded extends KeyStoreUnavailable {
  constructor() {
    super('the store was not seeded all the while');
    this.name = 'StoreUnseeded';
  }
}
