import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../../gateway/key-store.js';
import { TokenBucket } from '../../../gateway/token-bucket.js';
import { queryText, queryLifetimeMilliseconds, readQueryReply, type QueryReply } from '../gateway-records.js';
import type { ProvenReads } from './proven-reads.js';
import type { RecordNames } from '../record-names.js';
import type { RecordsLink } from '../records-link.js';
import type { Seals } from '../seal.js';
import type { Filling, Standing } from './standing.js';
import { objectIn } from '../store-state.js';

/** Dependencies of the check for missing records. */
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
/** The maximum rate of queries to the registry. A client that guesses keys must not overload the registry. */
const queriesPerSecond = 200;
/**
 * The maximum rate while an emptied store is rebuilt. It is higher, because nearly all queries during a rebuild are for
 * valid keys.
 */
const queriesPerSecondOfRebuild = 1_000;
const queryBurst = 1_000;
const maxSuspects = 10_000;

/**
 * Distinguishes a record that was evicted or deleted in Redis from a record that never existed. A grant is the
 * registry's permission to use the cache. Each grant also states whether the store has every record. Redis reports each
 * later deletion with an invalidation message. If the grant and the messages leave the question open, or the store is
 * being rebuilt, the gateway queries the registry, which reads its database.
 */
export class MissingRecords {
  readonly #options: MissingRecordsOptions;
  readonly #asks = new TokenBucket(queriesPerSecond, queryBurst, () => performance.now());
  readonly #asksOfFilling = new TokenBucket(queriesPerSecondOfRebuild, queryBurst, () => performance.now());
  #count = 0;
  /**
   * Redis keys that invalidation messages named. If such a key is missing now, it may have been evicted or deleted.
   */
  readonly #suspects = new Set<string>();
  /**
   * The number of the first heartbeat whose grant can prove that the store has every record. Before that heartbeat,
   * invalidation messages may have been missed.
   */
  #firstBeat = 0;

  constructor(options: MissingRecordsOptions) {
    this.#options = options;
  }

  /** Handles invalidation messages for these Redis keys, whose records may have been evicted or deleted. */
  changed(names: readonly string[]): void {
    for (const name of names) this.#suspects.add(name);
    if (this.#suspects.size > maxSuspects) this.missed();
  }

  /**
   * Requires a newer grant as proof that the store has every record. Must be called when invalidation messages may have
   * been missed.
   */
  missed(): void {
    this.#suspects.clear();
    this.#firstBeat = this.#options.standing.lease.beats + 1;
  }

  /**
   * Reads the text of a record; null if the registry has no such record.
   * @param name Redis key, with the prefix of the store
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
      throw new KeyStoreUnavailable('the registry has just written this record, but Redis no longer has it');
    return written;
  }

  async #mayBeMissing(name: string): Promise<boolean> {
    const { link, standing } = this.#options;
    const { lease, last } = standing;
    if (!(lease.enrolled ? lease.asks : last?.asks === true)) return false; // earlier registry releases do not reply
    const isKnown = (): boolean => lease.enrolled && lease.vouchedBeat >= this.#firstBeat && !this.#suspects.has(name);
    if (!isKnown()) return true;
    // If the record was deleted, the invalidation message may arrive after the reply to the read. So wait for pending
    // messages.
    const hasReceived = await link.receiveNotices().then(
      () => true,
      () => false,
    );
    return !hasReceived || !isKnown();
  }

  /**
   * Reads a record during a rebuild of the store, which begins a new generation (history of changes). Accepts only a
   * record of this generation, because an earlier record was written before the store was emptied.
   * @returns null if the registry has no such record; undefined if the rebuild has ended
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
    if (isPresent && text === null) throw new KeyStoreUnavailable('the registry has this record, but Redis does not');
    return text;
  }

  /**
   * Queries the registry for a record.
   * @returns whether the record exists; if so, the registry has written it to Redis
   * @throws KeyStoreUnavailable if the rate limit is reached, or the registry does not reply
   */
  async #query(name: string, generation: string, bucket: TokenBucket): Promise<boolean> {
    const { link, names, instanceId, seals } = this.#options;
    if (!bucket.take())
      throw new KeyStoreUnavailable(
        'Redis may have lost this record, and the gateway cannot check: its rate limit for queries to the registry is reached',
      );
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
        throw new KeyStoreUnavailable(
          'Redis may have lost this record, and the registry did not reply to the query for the record',
        );
    }
  }

  #stored(name: string): Promise<string | null> {
    return this.#options.link.text(name).catch(unavailable);
  }
}

function unavailable(cause: unknown): never {
  throw cause instanceof KeyStoreUnavailable ? cause : new KeyStoreUnavailable('Redis did not reply', { cause });
}
