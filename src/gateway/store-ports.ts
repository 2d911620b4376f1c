import type { FillingRecord, MetaRecord } from './records.js';
import type { Environment } from '../policy/key-format.js';

/**
 * What stands in the store as its meta record: of no generation where it is damaged, or of a layout that is not known, or where the store is
 * being filled with that generation.
 */
export type StoredMeta =
  MetaRecord | { readonly generation: null; readonly filling?: string; readonly database?: string | undefined };

/** A record to put into the store, or to take out of it where the value is null. */
export interface StoreEntry {
  /** `key:<lookupId>` or `merchant:<id>`; the adapter puts its prefix in front. */
  readonly name: string;
  readonly value: object | null;
}

/** How far the store is: the number of the newest change whose records it has, and that change's name. */
export interface Position {
  readonly revision: number;
  /** Two changes can have the same number, where a database was restored from a backup. */
  readonly change: string;
}

/** What a store says of itself at one moment. */
export interface StoreLook {
  /** At another number, the connections lead elsewhere, or something may have been missed. */
  readonly epoch: number;
  /** The run ids of the servers that hold the records, in their order; empty where they may not be asked for. */
  readonly servers: readonly string[];
  /** How many replicas could take a server's place. */
  readonly replicas: number;
  /** Null where there is none: then nobody's records are there, or somebody took it away so that all is written anew. */
  readonly meta: StoredMeta | null;
  /** The revision that was published last; 0 where there was none, or one that is no revision. */
  readonly revision: number;
  /** The name of that change; null where the store does not name it. */
  readonly change: string | null;
  /** False where a part of the store was emptied, or went back. */
  readonly isWhole: boolean;
  /**
   * How the meta record is sealed: by the secret that seals now, by another one that is accepted too, by none of them, or not at
   * all. Without a secret every seal is another one's.
   */
  readonly seal: 'current' | 'accepted' | 'other' | 'none';
}

/** What the servers of a store do when they are full, and how often they have done it. */
export interface StoreMemory {
  /** Theirs, without repetition (`maxmemory-policy`); none where they do not say. */
  readonly policies: readonly string[];
  /** How many records, or others, they have evicted since they started. */
  readonly evictedKeys: number;
  /** How much memory they may use together, in bytes (`maxmemory`); Infinity where one of them has no limit. */
  readonly maxMemory: number;
}

/** A gateway's acknowledgement, and what was heard of the gateway. */
export interface SeenGateway {
  readonly instanceId: string;
  /** How long nothing was heard of it, on this process's clock; it was counted anew where something may have been missed. */
  readonly silentMilliseconds: number;
  /** By how much the gateway's clock is ahead of this process's; null where that is not known. */
  readonly clockSkewMilliseconds: number | null;
  /** Null where none stands, or one that cannot be read. */
  readonly acknowledgement: GatewayAcknowledgement | null;
  /** Whether a gateway that has the secret of records wrote it; false also where this process has none. */
  readonly isSealed: boolean;
}

/** What a gateway acknowledges. What is undefined, a gateway of an earlier release does not say. */
interface GatewayAcknowledgement {
  readonly revision: number;
  readonly environment: Environment;
  readonly host: string;
  /** ISO 8601. */
  readonly startedAt: string;
  /** The history that the revision counts in. */
  readonly generation?: string | undefined;
  /** The number of the gateway's beat. */
  readonly beat?: number | undefined;
  /** How long the gateway may use what it holds, and a second. */
  readonly lifetimeMilliseconds?: number | undefined;
  readonly version?: string | undefined;
  /** The gateway has decided its last request. */
  readonly leaving?: boolean | undefined;
}

/** A part of what a gateway remembers as inactive, written when the store had lost it. */
export interface InactiveReport {
  /** To remove it by. */
  readonly name: string;
  readonly instanceId: string;
  /** The history that the gateway knew, and up to which change. */
  readonly generation: string;
  readonly revision: number;
  readonly entries: readonly StoreEntry[];
  /** Whether a gateway that has the secret of records wrote it; false also where this process has none. */
  readonly isSealed: boolean;
}

/** The gateways at one moment. */
export interface SeenGateways {
  /** As in `StoreLook`. */
  readonly epoch: number;
  /** The generation of a store whose meta record names its servers; null where it does not. */
  readonly generation: string | null;
  /** Whether that record is sealed by a secret that is accepted. */
  readonly isSealed: boolean;
  /** Whether every notice has been heard that was sent before the question. */
  readonly isHearing: boolean;
  readonly gateways: readonly SeenGateway[];
  /** Whether a gateway may have reported something since all reports were last read. */
  readonly hasReports: boolean;
}

/** The registry's leave for a gateway to use what it holds. */
export interface GatewayGrant {
  readonly instanceId: string;
  readonly generation: string;
  /** The newest beat that the registry has seen. */
  readonly beat: number;
  readonly lifetimeMilliseconds: number;
  /** Whether no record is missing in the store, as far as the registry knows. */
  readonly compared?: boolean;
}

/** A record that is not stored as it should be. */
export interface Difference {
  readonly name: string;
  /** What it should be; null: the database does not know the name. */
  readonly value: object | null;
  readonly isStored: boolean;
  /** What is stored; null where that is nothing, or not a JSON object. */
  readonly stored: object | null;
  /** The digest of what is stored. */
  readonly digest: string;
}

/** Records that somebody may have changed. */
export interface ChangedRecords {
  readonly names: readonly string[];
  /** There may have been others: notices were lost, or were too many. */
  readonly isIncomplete: boolean;
}

/** The records of a store, as the registry watches them for changes that it did not make. */
export interface WatchedRecords {
  /** Takes records that somebody else may have changed. Changes are looked at from the first call on, until `rest()` or a loss of notices. */
  take(most: number): ChangedRecords;
  /** Whether nothing is left to take, and no notice was lost or waits to be looked at. */
  readonly isQuiet: boolean;
  /** Settles when there was next something to take. */
  next(): Promise<void>;
  /** Looks at no changes until `take()` is called again: another registry writes. */
  rest(): void;
  /** Which of these records are stored otherwise than as of a generation, and the store's epoch after every notice of it was heard. */
  compare(
    entries: readonly StoreEntry[],
    generation: string,
  ): Promise<{ readonly epoch: number; readonly differences: readonly Difference[] }>;
  /** Stores the values of such records. Rejected, on one server, where another registry writes by now. */
  repair(differences: readonly Difference[], generation: string): Promise<void>;
}

/**
 * The store that gateways read, as the registry writes it. Each promise settles within the adapter's own time limit, and
 * is rejected where the store cannot be asked; a write that is rejected may still have happened.
 */
export interface RecordsStore {
  /** Whether the gateway that reads the store ends with this process, and holds nothing: nobody can then have been forgotten. */
  readonly endsWithProcess: boolean;
  /** Names of the secrets that records are sealed with, which say nothing about them: the first seals, all are accepted. None: nothing is sealed. */
  readonly sealIds: readonly string[];
  /** Whether another server can take this one's place without the registry. */
  readonly canFailOver: boolean;
  /** Null where nobody else can write to the store. */
  readonly watched: WatchedRecords | null;
  /** Null where no gateway asks for records. */
  readonly inbox: RecordInbox | null;
  /** Rejected, where sentinels or the masters of a Cluster are to name the server, while a majority does not name this one. */
  look(): Promise<StoreLook>;
  /** What it does when it is full; null for a store that is never. */
  memory(): Promise<StoreMemory | null>;
  /** Begins to write. What another process has begun ends by that, on one server: it publishes nothing more. */
  begin(): Promise<void>;
  /**
   * Writes all of them or, where it is rejected, perhaps some. An adapter splits what is too much for one command. What the
   * store holds of a later change stays.
   * @param change the revision of the newest change among them
   * @param generation the history that they are of
   * @returns the highest revision of a record that stayed; 0 where none did
   */
  write(entries: readonly StoreEntry[], change: number, generation: string): Promise<number>;
  /** The same for records that are written anew, and have not changed. @param revision up to which they replace what is there */
  rewrite(entries: readonly StoreEntry[], revision: number, generation: string): Promise<number>;
  /**
   * Tells gateways that every record up to this change is written, which they then acknowledge. Rejected, on one server, where it
   * is not the one, or lacks some of what was written, since `begin()`: another may have taken its place. Rejected, in a Cluster,
   * where a later revision was published.
   */
  publish(position: Position): Promise<void>;
  /**
   * Says that the store is complete: everything was written since `begin()`, up to this change. The meta record is written
   * last. Rejected where a part of the store is not what it was then.
   */
  complete(meta: MetaRecord, position: Position): Promise<void>;
  /**
   * Says that the store was emptied and is being filled, so that gateways ask for what they need. Left out for a store whose gateways wait
   * until it is complete. Rejected as `publish`.
   */
  fill?(meta: FillingRecord): Promise<void>;
  /** Every gateway that has an acknowledgement, of every environment, and those of the roster. @param roster their instance ids */
  gateways(roster: readonly string[]): Promise<SeenGateways>;
  /** Settles when something was next heard of a gateway: it may have acknowledged. A store that hears of none never settles it. */
  nextAcknowledgement(): Promise<void>;
  grant(grants: readonly GatewayGrant[]): Promise<void>;
  /** Takes away grants, then acknowledgements. */
  removeGateways(instanceIds: readonly string[]): Promise<void>;
  /** What gateways report as inactive; a report that cannot be used is left out. */
  reports(): AsyncIterable<InactiveReport>;
  /** Takes reports away. @param names theirs */
  removeReports(names: readonly string[]): Promise<void>;
  /** Records as they are stored, in the order of the names; null for one that is not there, or is not JSON. */
  read(names: readonly string[]): Promise<readonly StoreEntry[]>;
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

/** A record that a gateway does not find, and asks for. */
export interface RecordAsk {
  /** To answer it by. */
  readonly name: string;
  /** The record's name, as in `StoreEntry`. */
  readonly record: string;
}

/** What gateways ask for because they do not find it. */
export interface RecordInbox {
  /** Called when something was asked for. */
  onWork: () => void;
  /** Takes what was asked for, at most so much; each question is given once. */
  take(most: number): readonly RecordAsk[];
  /**
   * @param present the names of the records that were written again; there are no others
   * @param generation that in which they were
   */
  answer(asks: readonly RecordAsk[], present: ReadonlySet<string>, generation: string): Promise<void>;
}
