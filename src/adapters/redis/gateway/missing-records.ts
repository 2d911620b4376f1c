import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../../gateway/ports.js';
import { TokenBucket } from '../../../gateway/token-bucket.js';
import { queryText, queryLifetimeMilliseconds, readQueryReply, type QueryReply } from '../gateway-records.js';
import type { ProvenReads } from './proven-reads.js';
import type { RecordNames } from '../record-names.js';
import type { RecordsLink } from '../records-link.js';
import type { Seals } from '../seal.js';
import type { Filling, Standing } from './standing.js';
import { objectIn } from '../store-state.js';

/** What the check of absent records depends on. */
export interface MissingRecordsOptions {
  readonly link: Pick<RecordsLink, 'receiveNotices' | 'text' | 'write'>;
  readonly reads: Pick<ProvenReads, 'text'>;
  readonly standing: Standing;
  readonly names: RecordNames;
  readonly instanceId: string;
  readonly seals: Seals;
}

/** How long a gateway waits for the registry's reply. Query and reply stay in Redis for twice as long. */
const longestMilliseconds = queryLifetimeMilliseconds / 2;
const firstPauseMilliseconds = 5;
const longestPauseMilliseconds = 50;
/** A client that guesses keys must not occupy the registry with queries. */
const queriesPerSecond = 200;
/** While an emptied store is rebuilt, nearly all queries are for valid keys, so the limit is higher. */
const queriesPerSecondOfRebuild = 1_000;
const queryBurst = 1_000;
const maxSuspects = 10_000;

/**
 * Distinguishes a missing record, which was evicted or deleted, from one that never existed.
 * In each grant the registry states whether it knows that no record is missing; from then on the gateway gets a notice
 * of each deletion.
 * Where the gateway cannot rely on that, and during the rebuild of an emptied store, it queries the registry for the
 * record by name. The registry reads its database.
 */
export class MissingRecords {
  readonly #options: MissingRecordsOptions;
  readonly #asks = new TokenBucket(queriesPerSecond, queryBurst, () => performance.now());
  readonly #asksOfFilling = new TokenBucket(queriesPerSecondOfRebuild, queryBurst, () => performance.now());
  #count = 0;
  /** Records that a notice named. If such a record is absent, it may have been evicted or deleted. */
  readonly #suspects = new Set<string>();
  /** The first beat whose grant counts: notices may have been missed before it. */
  #firstBeat = 0;

  constructor(options: MissingRecordsOptions) {
    this.#options = options;
  }

  /** Notices arrived for these names. */
  changed(names: readonly string[]): void {
    for (const name of names) this.#suspects.add(name);
    if (this.#suspects.size > maxSuspects) this.missed();
  }

  /** Notices may have been missed. */
  missed(): void {
    this.#suspects.clear();
    this.#firstBeat = this.#options.standing.lease.beats + 1;
  }

  /**
   * The text of a record as the registry has it; null if the registry has no such record.
   * @param name with the prefix of the store
   * @throws KeyStoreUnavailable
   */
  async text(name: string): Promise<string | null> {
    const { reads, standing } = this.#options;
    const { filling } = standing;
    const filled = filling === null ? undefined : await this.#textOfFilling(name, filling);
    if (filled !== undefined) return filled;
    const text = await reads.text(name);
    if (text !== null || !(await this.#mayBeMissing(name))) return text;
    const isPresent = await this.#query(name, standing.generation, this.#asks);
    if (!isPresent) return null;
    const written = await reads.text(name);
    if (written === null)
      throw new KeyStoreUnavailable('the registry has just written this record, but it is missing again');
    return written;
  }

  async #mayBeMissing(name: string): Promise<boolean> {
    const { link, standing } = this.#options;
    const { lease, last } = standing;
    if (!(lease.enrolled ? lease.asks : last?.asks === true)) return false; // earlier releases do not reply
    const isKnown = (): boolean => lease.enrolled && lease.vouchedBeat >= this.#firstBeat && !this.#suspects.has(name);
    if (!isKnown()) return true;
    // Redis may have reported the record as absent before the notice of its deletion arrived.
    const hasReceived = await link.receiveNotices().then(
      () => true,
      () => false,
    );
    return !hasReceived || !isKnown();
  }

  /**
   * During a rebuild, a record that names the new generation was written after the store was emptied.
   * @returns undefined if the rebuild has ended
   */
  async #textOfFilling(name: string, { generation }: Filling): Promise<string | null | undefined> {
    const read = async (): Promise<string | null> => {
      const text = await this.#stored(name);
      if (text === null || !this.#options.seals.accept(name, text)) return null;
      const record = objectIn(text) as { readonly generation?: unknown } | null;
      return record?.generation === generation ? text : null;
    };
    const before = await read();
    const isPresent = before !== null || (await this.#query(name, generation, this.#asksOfFilling));
    const text = before === null && isPresent ? await read() : before;
    if (this.#options.standing.filling?.generation !== generation) return undefined;
    if (isPresent && text === null)
      throw new KeyStoreUnavailable('the registry has this record, but it is not in Redis');
    return text;
  }

  /** Queries the registry. @returns whether the registry has the record, and has written it to Redis */
  async #query(name: string, generation: string, bucket: TokenBucket): Promise<boolean> {
    const { link, names, instanceId, seals } = this.#options;
    if (!bucket.take())
      throw new KeyStoreUnavailable('records may be missing, and queries to the registry are rate limited');
    this.#count += 1;
    const question = names.ask(instanceId, this.#count, name);
    const began = performance.now();
    const text = { name: question, text: queryText, lifetimeMilliseconds: queryLifetimeMilliseconds };
    await link.write(text).catch(unavailable);
    for (let pause = firstPauseMilliseconds; ; pause = Math.min(2 * pause, longestPauseMilliseconds)) {
      await wait(pause);
      const stored = await this.#stored(question);
      const reply: QueryReply | null =
        stored === null || !seals.accept(question, stored) ? null : readQueryReply(stored);
      if (reply?.generation === generation) return reply.isPresent;
      if (stored === null || performance.now() - began > longestMilliseconds)
        throw new KeyStoreUnavailable('records may be missing, and the registry has not replied whether this one is');
    }
  }

  #stored(name: string): Promise<string | null> {
    return this.#options.link.text(name).catch(unavailable);
  }
}

function unavailable(cause: unknown): never {
  throw cause instanceof KeyStoreUnavailable ? cause : new KeyStoreUnavailable('Redis did not reply', { cause });
}
