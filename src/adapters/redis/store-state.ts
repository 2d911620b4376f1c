import { MalformedRecord, parseFillingRecord, parseMetaRecord, parseRecordText } from '../../gateway/records.js';
import type { FillingRecord, MetaRecord } from '../../gateway/records.js';
import type { StoredMeta, StoreEntry } from '../../gateway/store-ports.js';
import { revisionIn } from './record-text.js';
import { isProof, withoutSeal, type Seals, type SealState } from './seal.js';

/**
 * Why a meta record without servers is distrusted if an earlier one listed servers. The meta record describes the whole
 * store. Only earlier releases of the registry omit the servers, so Redis may have been restored from an old snapshot.
 */
const noServers =
  'the meta record of the store lists no Redis servers, but it listed some before: Redis was restored from an old snapshot, or an earlier release of the registry runs';
const earlierGeneration =
  'the meta record of the store was written before the store was last rebuilt (earlier generation), so Redis was restored from an old snapshot, or this server is a former master';
const rebuilding = 'the store was emptied, and the registry is rewriting its records';
const notReadYet = 'the meta record of the store has not been read yet';

/** The state of a trusted store, whose records the gateway is allowed to use. */
export interface BelievedState {
  readonly generation: string;
  /** The newest revision, which is the number of the last change. */
  readonly revision: number;
  /**
   * How many replicas could take over from this server. Null: the registry is of an earlier release, which does not
   * report the number and gives gateways no leases for their caches.
   */
  readonly replicas: number | null;
  /** Whether the registry replies to gateways' queries for a missing record. Omitted: false. */
  readonly asks?: boolean;
}

/**
 * Decides whether the records of a store can be trusted. Reasons to distrust them:
 * 1. The store has no meta record (the description of the store): it is new, flushed or restored empty.
 * 2. The revision (number of the newest change) has decreased: a failover has lost changes, perhaps a revocation.
 * 3. The registry has not compared a server with the database: that server may have lost changes before this gateway
 *    first read it.
 */
export class StoreState {
  #reason: string | null = notReadYet;
  #generation: string | null = null;
  #highestRevision = 0;
  #isEarlierRelease = true;
  #notNamed: string | null = null;
  #filling: FillingRecord | null = null;
  readonly #check: MetaCheck | null;

  /** @param check verifies the seal of the meta record, and throws if the record may be a forgery; null: no check */
  constructor(check: MetaCheck | null = null) {
    this.#check = check;
  }

  /** Why the records of the store must not be used, as of the last read; null if they can be used. */
  get reason(): string | null {
    return this.#reason;
  }

  /**
   * The generation of the records that were last trusted; null if no records were trusted yet. A generation is one
   * unbroken history of changes.
   */
  get generation(): string | null {
    return this.#generation;
  }

  /**
   * Whether a registry of an earlier release wrote the records that were last trusted. Also true before any records
   * were trusted. If true, the gateway follows the rules of that release.
   */
  get isFormer(): boolean {
    return this.#isEarlierRelease;
  }

  /**
   * The meta record of a store that the registry is refilling. Null if the store is not being refilled. Also null if
   * the record does not name all servers of the store, or if a server is not identified yet.
   */
  get filling(): FillingRecord | null {
    return this.#filling;
  }

  /**
   * Why the registry may not have compared this server's records with its database. Null in these cases:
   * 1. The meta record names this server. The registry adds a server there only after the comparison.
   * 2. The run ids of the servers are not known yet.
   * 3. The meta record is from an earlier release and names no servers.
   */
  get notNamed(): string | null {
    return this.#notNamed;
  }

  /**
   * Decides whether to trust the state that the store reports. A generation is one unbroken history of changes. If the
   * store loses changes of its generation, the revision decreases. A gateway that the registry has enrolled (listed) in
   * this generation notices the decrease. Any other gateway distrusts a server that is not in the meta
   * record's list of servers. While the gateway is enrolled, an earlier generation is not trusted.
   * @param meta the text of the meta record, which describes the store
   * @param newest the text of the newest revision (number of a change)
   * @param servers the run ids of all servers of the store. An element is null if INFO omits the run id. The whole
   * array is null while the run ids are unknown; the caller must then not rely on the result
   * @param enrolledIn the generation in which the registry enrolled this gateway; null: not enrolled
   * @returns the trusted state, to be passed to `adopt`; null if it is not trusted
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
      // A former master still has the earlier generation, and lacks revocations that this gateway has acknowledged. An
      // attacker could also replay an old meta record (description of the store), whose seal (HMAC) remains valid.
      if (enrolledIn !== null && generation < enrolledIn) throw new MalformedRecord(earlierGeneration);
      if (record.version === 2) {
        if (named !== undefined && servers !== null && whyNotNamed(servers, named) === null) this.#filling = record;
        throw new MalformedRecord(rebuilding);
      }
      const revision = revisionIn(newest);
      if (revision === null)
        throw new MalformedRecord('the revision of the store (number of the newest change) is malformed');
      if (named === undefined && !this.#isEarlierRelease) throw new MalformedRecord(noServers);
      this.#notNamed = named === undefined || servers === null ? null : whyNotNamed(servers, named);
      const hasLost = generation === this.#generation && revision < this.#highestRevision;
      if (hasLost)
        this.#reason = `the store has lost changes: its revision is ${revision}, but was ${this.#highestRevision} before`;
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

  /**
   * Makes a trusted state the current one. From then on, a lower revision of the same generation is not trusted,
   * because it shows that changes were lost.
   */
  adopt({ generation, revision, replicas }: BelievedState): void {
    if (generation !== this.#generation) this.#highestRevision = 0;
    this.#generation = generation;
    this.#highestRevision = Math.max(this.#highestRevision, revision);
    this.#isEarlierRelease = replicas === null;
  }
}

/**
 * Returns why the registry may not have compared these servers with its database; null if the meta record (the
 * description of the store) names all of them.
 */
function whyNotNamed(servers: readonly (string | null)[], named: readonly string[]): string | null {
  if (servers.includes(null)) return 'cannot identify the Redis server: grant the Redis user the right +info';
  const others = servers.filter((server) => server !== null && !named.includes(server));
  if (others.length === 0) return null;
  return `the registry has not compared this Redis server with its own database yet (run_id ${others.join(', ')}); if this lasts more than a few seconds, check that a registry runs`;
}

/**
 * Returns the generation that a meta record names. A generation is one unbroken history of changes.
 * @throws MalformedRecord if the meta record is missing or invalid, or the store is being refilled
 */
export function generationOf(meta: string | null, check: MetaCheck): string {
  const record = readMetaRecord(meta, check);
  if (record.version === 2) throw new MalformedRecord(rebuilding);
  return record.generation;
}

/**
 * Verifies the text of the meta record, which describes the whole store.
 * @throws MalformedRecord if the record could be forged
 */
export type MetaCheck = (text: string) => void;

/**
 * Checks and parses the stored meta record, which describes the whole store.
 * @throws MalformedRecord if it is missing or invalid, or `check` rejects it
 */
function readMetaRecord(meta: string | null, check: MetaCheck): MetaRecord | FillingRecord {
  if (meta === null)
    throw new MalformedRecord('the store has no meta record: the registry has not written the records yet');
  try {
    check(meta);
  } catch (error) {
    if (!(error instanceof MalformedRecord)) throw error;
    const how =
      'start the registry with the same keys.recordSecretFile as the gateways; the registry then seals all records';
    throw new MalformedRecord(
      `the meta record of the store cannot be trusted, because ${error.message}; ${how}`,
      error,
    );
  }
  try {
    const value = parseRecordText(withoutSeal(meta));
    const isFilling = typeof value === 'object' && value !== null && 'filling' in value;
    return isFilling ? parseFillingRecord(value) : parseMetaRecord(value);
  } catch (error) {
    throw new MalformedRecord('the meta record of the store cannot be used: it is malformed', { cause: error });
  }
}

const unchecked: MetaCheck = () => undefined;

/**
 * Parses the stored meta record without checking its seal (HMAC). Returns null if the record is missing. In the result,
 * `generation` is null if the record is invalid or the store is being refilled.
 */
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

/** Returns which secret made the seal (HMAC) of the meta record; `none` if the record is missing or has no seal. */
export function storedSeal(seals: Seals, name: string, meta: string | null): SealState {
  return meta === null ? 'none' : seals.stateOf(name, meta);
}

/**
 * Returns the generation that the meta record names, and whether that record has a valid seal (HMAC). The generation is
 * null if the record is invalid or does not name exactly these servers, or if no servers are given.
 * @param servers the sorted run ids of the connected servers
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

/** Pairs names with the parsed records; null for a record that is missing or cannot be parsed. */
export function entriesOf(names: readonly string[], texts: readonly (string | null)[]): StoreEntry[] {
  return names.map((name, index) => ({ name, value: objectIn(texts[index] ?? null) }));
}

/** Parses the object in a JSON text; null for any other text. */
export function objectIn(text: string | null): object | null {
  try {
    const value = text === null ? null : parseRecordText(text);
    return typeof value === 'object' ? value : null;
  } catch (error) {
    if (error instanceof MalformedRecord) return null;
    throw error;
  }
}
