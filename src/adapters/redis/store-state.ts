import { MalformedRecord, parseFillingRecord, parseMetaRecord, parseRecordText } from '../../gateway/records.js';
import type { FillingRecord, MetaRecord } from '../../gateway/records.js';
import type { StoredMeta, StoreEntry } from '../../gateway/store-ports.js';
import { revisionIn } from './record-text.js';
import { isProof, withoutSeal, type Seals, type SealState } from './seal.js';

/** Of a snapshot from before an upgrade, say: what was in force since then may be missing. */
const noServers =
  'the meta record names no servers, though that of this store did: it is older, or of an earlier release of the registry';
const goneBack = 'the meta record of the store is of an earlier generation';
const isFilled = 'the store was emptied, and the registry writes its records again';
const notAsked = 'it is not known yet whether the store is seeded';

/** What was read of a store, and is believed of it. */
export interface BelievedState {
  readonly generation: string;
  /** That of the newest change. */
  readonly revision: number;
  /** How many servers may take the place of this one; null: the registry's former release does not say, nor does it grant leases. */
  readonly replicas: number | null;
  /** Whether the registry answers when it is asked for a record. */
  readonly asks?: boolean;
}

/**
 * Whether the records of a store can decide anything. A store without its meta record is new, flushed or restored empty;
 * one whose revision went back has lost changes, a revocation perhaps, as a replica may that was promoted. A server that the
 * registry has not compared with its database may have lost them before this gateway looked.
 */
export class StoreState {
  #reason: string | null = notAsked;
  #generation: string | null = null;
  #highestRevision = 0;
  #isFormer = true;
  #notNamed: string | null = null;
  #filling: FillingRecord | null = null;
  readonly #check: MetaCheck | null;

  /** @param check refuses a meta record that may not be believed; null: all are believed */
  constructor(check: MetaCheck | null = null) {
    this.#check = check;
  }

  /** Why nothing could be decided when the store was last asked; null where it could. */
  get reason(): string | null {
    return this.#reason;
  }

  /** The generation of the records that were believed last; null before the first. */
  get generation(): string | null {
    return this.#generation;
  }

  /** Whether the records that were believed last are those of the registry's former release, whose rules hold then. */
  get isFormer(): boolean {
    return this.#isFormer;
  }

  /** What the store says while it is filled, on the servers that it was found on; null for a store that is not. */
  get filling(): FillingRecord | null {
    return this.#filling;
  }

  /** Why the registry does not vouch for a server that is believed all the same; null where it does. */
  get notNamed(): string | null {
    return this.#notNamed;
  }

  /**
   * Judges what the store says of itself.
   * @param servers the run ids of all servers that it is on; null for one that does not say. Null where they are not known yet: the caller must not believe them then
   * @param enrolledIn the generation in which this gateway is enrolled: what it remembers of that proves that nothing is missing
   * @returns what can be believed, which is to be adopted; null for nothing
   */
  judge(
    meta: string | null,
    newest: string | null,
    servers: readonly (string | null)[] | null,
    enrolledIn: string | null,
  ): BelievedState | null {
    this.#filling = null;
    try {
      const record = readMetaRecord(meta, this.#check ?? unchecked);
      const { generation, servers: named, replicas = 0, asks = false } = record;
      // Sealed it may be, and put back by somebody: the registry writes what it should be. Its records would be believed again.
      if (this.#check !== null && enrolledIn !== null && generation < enrolledIn) throw new MalformedRecord(goneBack);
      if (record.version === 2) {
        if (named !== undefined && servers !== null && whyNotNamed(servers, named) === null) this.#filling = record;
        throw new MalformedRecord(isFilled);
      }
      const revision = revisionIn(newest);
      if (revision === null) throw new MalformedRecord('the revision is not a number');
      if (named === undefined && !this.#isFormer) throw new MalformedRecord(noServers);
      this.#notNamed = named === undefined || servers === null ? null : whyNotNamed(servers, named);
      const hasLost = generation === this.#generation && revision < this.#highestRevision;
      if (hasLost)
        this.#reason = `the store has lost changes: revision ${this.#highestRevision} was seen, and it has ${revision}`;
      else this.#reason = generation === enrolledIn ? null : this.#notNamed;
      return this.#reason === null
        ? { generation, revision, replicas: named === undefined ? null : replicas, asks }
        : null;
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
      this.#reason = error.message;
      return null;
    }
  }

  /** Takes on what is believed. From now on no lower revision of that generation is. */
  adopt({ generation, revision, replicas }: BelievedState): void {
    if (generation !== this.#generation) this.#highestRevision = 0;
    this.#generation = generation;
    this.#highestRevision = Math.max(this.#highestRevision, revision);
    this.#isFormer = replicas === null;
  }
}

/** Why the registry does not vouch for these servers; null where it does. */
function whyNotNamed(servers: readonly (string | null)[], named: readonly string[]): string | null {
  if (servers.includes(null)) return 'Redis does not say which server it is: its user lacks the right +info';
  const others = servers.filter((server) => server !== null && !named.includes(server));
  if (others.length === 0) return null;
  return `the registry has not compared this Redis server with its database yet: ${others.join(', ')}`;
}

/**
 * The generation that a meta record names.
 * @throws MalformedRecord where there is no such record, or one that cannot be used
 */
export function generationOf(meta: string | null, check: MetaCheck): string {
  const record = readMetaRecord(meta, check);
  if (record.version === 2) throw new MalformedRecord(isFilled);
  return record.generation;
}

/** Refuses a meta record that may not be believed, before it is parsed. @throws MalformedRecord */
export type MetaCheck = (text: string) => void;

/**
 * A meta record as it is stored.
 * @throws MalformedRecord where there is none, or one that cannot be used
 */
function readMetaRecord(meta: string | null, check: MetaCheck): MetaRecord | FillingRecord {
  if (meta === null) throw new MalformedRecord('the store is not seeded: it has no meta record');
  try {
    check(meta);
  } catch (error) {
    if (!(error instanceof MalformedRecord)) throw error;
    const how = 'only sealed records are believed, and a registry with the same keys.recordSecretFile seals them all';
    throw new MalformedRecord(`the meta record of the store cannot be believed: ${error.message}; ${how}`, error);
  }
  try {
    const value = parseRecordText(withoutSeal(meta));
    const isFilling = typeof value === 'object' && value !== null && 'filling' in value;
    return isFilling ? parseFillingRecord(value) : parseMetaRecord(value);
  } catch (error) {
    throw new MalformedRecord('the meta record of the store cannot be used', { cause: error });
  }
}

const unchecked: MetaCheck = () => undefined;

/** A meta record as it is stored, without its seal; of no generation where it is of no use or says that the store is filled, null for none. */
export function storedMeta(meta: string | null): StoredMeta | null {
  if (meta === null) return null;
  try {
    const record = readMetaRecord(meta, unchecked);
    return record.version === 1 ? record : { generation: null, filling: record.generation, database: record.database };
  } catch (error) {
    if (error instanceof MalformedRecord) return { generation: null };
    throw error;
  }
}

/** How a meta record is sealed. */
export function storedSeal(seals: Seals, name: string, meta: string | null): SealState {
  return meta === null ? 'none' : seals.stateOf(name, meta);
}

/**
 * The generation of a meta record that names exactly these servers, null for any other; and whether it is sealed.
 * @param servers in their order
 */
export function readGeneration(
  seals: Seals,
  name: string,
  text: string | null,
  servers: readonly string[],
): { generation: string | null; isSealed: boolean } {
  const meta = storedMeta(text);
  const isSealed = isProof(storedSeal(seals, name, text));
  const isNamed = meta !== null && meta.generation !== null && servers.length > 0;
  return { generation: isNamed && meta.servers?.join() === servers.join() ? meta.generation : null, isSealed };
}

/** Records with their names; null for one that is not there, or cannot be read. */
export function entriesOf(names: readonly string[], texts: readonly (string | null)[]): StoreEntry[] {
  return names.map((name, index) => ({ name, value: objectIn(texts[index] ?? null) }));
}

/** The object that a text is the JSON of; null where it is none. */
export function objectIn(text: string | null): object | null {
  try {
    const value = text === null ? null : parseRecordText(text);
    return typeof value === 'object' ? value : null;
  } catch (error) {
    if (error instanceof MalformedRecord) return null;
    throw error;
  }
}
