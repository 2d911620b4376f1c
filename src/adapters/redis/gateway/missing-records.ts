import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../../gateway/ports.js';
import { TokenBucket } from '../../../gateway/token-bucket.js';
import { asked, mostAskMilliseconds, readAnswer, type AskAnswer } from '../gateway-records.js';
import type { ProvenReads } from './proven-reads.js';
import type { RecordNames } from '../record-names.js';
import type { RecordsLink } from '../records-link.js';
import type { Seals } from '../seal.js';
import type { Filling, Standing } from './standing.js';
import { objectIn } from '../store-state.js';

/** What absent records are judged by. */
export interface MissingRecordsOptions {
  readonly link: Pick<RecordsLink, 'heard' | 'text' | 'write'>;
  readonly reads: Pick<ProvenReads, 'text'>;
  readonly standing: Standing;
  readonly names: RecordNames;
  readonly instanceId: string;
  readonly seals: Seals;
}

/** How long a gateway waits for an answer. Question and answer stay in Redis for twice as long. */
const longestMilliseconds = mostAskMilliseconds / 2;
const firstPauseMilliseconds = 5;
const longestPauseMilliseconds = 50;
/** Whoever tries out keys must not have the registry do nothing else. */
const asksPerSecond = 200;
/** While the store is filled, nearly all are good keys. */
const asksPerSecondOfFilling = 1_000;
const asksAtOnce = 1_000;
const mostDoubts = 10_000;

/**
 * Tells a missing record, which was evicted or deleted, from one that never existed. In each grant the registry says whether it knows
 * that no record is missing; from then on the gateway gets a notice of each deletion. Where the gateway cannot rely on that, and while
 * an emptied store is filled, it asks the registry for the record by name. The registry looks that up in its database.
 */
export class MissingRecords {
  readonly #options: MissingRecordsOptions;
  readonly #asks = new TokenBucket(asksPerSecond, asksAtOnce, () => performance.now());
  readonly #asksOfFilling = new TokenBucket(asksPerSecondOfFilling, asksAtOnce, () => performance.now());
  #count = 0;
  /** Records that a notice named: if such a record is not there, it may have been evicted or deleted. */
  readonly #doubts = new Set<string>();
  /** What the registry says counts from this beat on: before it, notices may have been missed. */
  #firstBeat = 0;

  constructor(options: MissingRecordsOptions) {
    this.#options = options;
  }

  /** Notices came of these names. */
  changed(names: readonly string[]): void {
    for (const name of names) this.#doubts.add(name);
    if (this.#doubts.size > mostDoubts) this.missed();
  }

  /** Notices may have been missed. */
  missed(): void {
    this.#doubts.clear();
    this.#firstBeat = this.#options.standing.lease.beats + 1;
  }

  /**
   * The text of a record as the registry has it; null where the registry has none.
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
    const isPresent = await this.#ask(name, standing.generation, this.#asks);
    if (!isPresent) return null;
    const written = await reads.text(name);
    if (written === null) throw new KeyStoreUnavailable('a record is missing again that the registry has just written');
    return written;
  }

  async #mayBeMissing(name: string): Promise<boolean> {
    const { link, standing } = this.#options;
    const { lease, last } = standing;
    if (!(lease.enrolled ? lease.asks : last?.asks === true)) return false; // an earlier release of the registry does not answer
    const isKnown = (): boolean => lease.enrolled && lease.vouchedBeat >= this.#firstBeat && !this.#doubts.has(name);
    if (!isKnown()) return true;
    // That it is not there may have been answered before the notice of that came.
    const isHeard = await link.heard().then(
      () => true,
      () => false,
    );
    return !isHeard || !isKnown();
  }

  /** Each record that names the generation was written since the store was emptied. @returns undefined where that has ended meanwhile */
  async #textOfFilling(name: string, { generation }: Filling): Promise<string | null | undefined> {
    const read = async (): Promise<string | null> => {
      const text = await this.#stored(name);
      if (text === null || !this.#options.seals.accept(name, text)) return null;
      const record = objectIn(text) as { readonly generation?: unknown } | null;
      return record?.generation === generation ? text : null;
    };
    const before = await read();
    const isPresent = before !== null || (await this.#ask(name, generation, this.#asksOfFilling));
    const text = before === null && isPresent ? await read() : before;
    if (this.#options.standing.filling?.generation !== generation) return undefined;
    if (isPresent && text === null)
      throw new KeyStoreUnavailable('the registry has not written the record that it has');
    return text;
  }

  /** @returns whether the registry has such a record, and has written it */
  async #ask(name: string, generation: string, bucket: TokenBucket): Promise<boolean> {
    const { link, names, instanceId, seals } = this.#options;
    if (!bucket.take()) throw new KeyStoreUnavailable('records may be missing, and the registry is asked for too many');
    this.#count += 1;
    const question = names.ask(instanceId, this.#count, name);
    const began = performance.now();
    const text = { name: question, text: asked, lifetimeMilliseconds: mostAskMilliseconds };
    await link.write(text).catch(unavailable);
    for (let pause = firstPauseMilliseconds; ; pause = Math.min(2 * pause, longestPauseMilliseconds)) {
      await wait(pause);
      const stored = await this.#stored(question);
      const answer: AskAnswer | null = stored === null || !seals.accept(question, stored) ? null : readAnswer(stored);
      if (answer?.generation === generation) return answer.isPresent;
      if (stored === null || performance.now() - began > longestMilliseconds)
        throw new KeyStoreUnavailable('records may be missing, and the registry does not say whether this one is');
    }
  }

  #stored(name: string): Promise<string | null> {
    return this.#options.link.text(name).catch(unavailable);
  }
}

function unavailable(cause: unknown): never {
  throw cause instanceof KeyStoreUnavailable ? cause : new KeyStoreUnavailable('Redis could not be asked', { cause });
}
