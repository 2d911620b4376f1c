import type { parseMetaRecord } from '../gateway/records.js';
import type { Environment } from '../policy/key-format.js';

/** What the store says of itself: it is seeded, and with whose records. */
export type MetaRecord = ReturnType<typeof parseMetaRecord>;

/** What stands in the store as its meta record: of no generation where it is damaged, or of a layout that is not known. */
export type StoredMeta = MetaRecord | { readonly generation: null };

/** A record to put into the store, or to take out of it where the value is null. */
export interface StoreEntry {
  /** `key:<lookupId>` or `merchant:<id>`; the adapter puts its prefix in front. */
  readonly name: string;
  readonly value: object | null;
}

/** A gateway that has lately acknowledged a revision. */
export interface LiveGateway {
  readonly instanceId: string;
  readonly revision: number;
  readonly environment: Environment;
  readonly host: string;
  /** ISO 8601. */
  readonly startedAt: string;
  /** Whether it has missed several acknowledgements in a row: it has probably vanished, and will not confirm soon. */
  readonly isSilent?: boolean;
}

/**
 * The store that gateways read, as the registry writes it. Each promise settles within the adapter's own time limit, and
 * is rejected where the store cannot be asked; a write that is rejected may still have happened.
 */
export interface RecordsStore {
  /** Null where there is none: then nobody's records are there, or somebody took it away so that all is written anew. */
  readMeta(): Promise<StoredMeta | null>;
  /**
   * Begins to look at the store and to write it. What another process has begun ends by that, on one server: it publishes nothing more.
   * @returns whether each part of it has every change that was written: false where one was emptied, or went back
   */
  begin(): Promise<boolean>;
  /**
   * Says that the store is complete up to a revision: everything was written since `begin()`. Rejected where a part of the
   * store is not what it was then.
   */
  writeMeta(meta: MetaRecord, revision: number): Promise<void>;
  /**
   * Writes all of them or, where it is rejected, perhaps some. An adapter splits what is too much for one command. What the
   * store holds of a later change stays.
   * @param change the revision of the newest change among them
   * @returns the highest revision of a record that stayed; 0 where none did
   */
  write(entries: readonly StoreEntry[], change: number): Promise<number>;
  /** The same for records that are written anew, and have not changed. @param revision up to which they replace what is there */
  rewrite(entries: readonly StoreEntry[], revision: number): Promise<number>;
  /** The revision that was published last; 0 where there was none, or one that is no revision. */
  readRevision(): Promise<number>;
  /**
   * Tells gateways that every record of this revision is written, which they then acknowledge. Rejected, on one server, where it
   * is not the one, or lacks some of what was written, since `begin()`: another may have taken its place. Rejected, in a Cluster,
   * where a later revision was published.
   */
  publishRevision(revision: number): Promise<void>;
  /** Those that live, of every environment. */
  gateways(): Promise<readonly LiveGateway[]>;
  /** The names that begin so; one that comes or goes meanwhile may be left out, and one may come twice. */
  names(prefix: string): AsyncIterable<string>;
}

/** The time, in milliseconds since 1970. */
export interface Clock {
  now(): number;
}

/** Runs something later. */
export interface Timers {
  /** @returns what calls it off */
  after(milliseconds: number, act: () => void): () => void;
}

/** Where the registry reports what it could not do. A pino logger is one. */
export interface Logger {
  error(details: object, message: string): void;
  warn(details: object, message: string): void;
  info(details: object, message: string): void;
}
