import { setTimeout as wait } from 'node:timers/promises';
import { KeyStoreUnavailable } from '../../gateway/ports.js';
import { TokenBucket } from '../../gateway/token-bucket.js';
import { answerText, asked } from './ask-inbox.js';
import type { Grant } from './gateway-records.js';
import type { RecordNames } from './record-names.js';
import type { RecordsLink } from './records-link.js';
import type { BelievedState } from './store-state.js';

/** What absent records are judged by. */
export interface MissingRecordsOptions {
  readonly link: Pick<RecordsLink, 'heard' | 'text' | 'write' | 'read'>;
  readonly names: RecordNames;
  readonly instanceId: string;
}

/** The beat that found something, and the connections that it used. */
export interface FoundIn {
  readonly beat: number;
  readonly epoch: number;
}

const longestMilliseconds = 1_000;
const firstPauseMilliseconds = 5;
const longestPauseMilliseconds = 100;
const asksPerSecond = 200;
const asksAtOnce = 1_000;
/** While the store is filled, nearly all are good keys; the registry looks up some thousands a second. */
const fillingAsksPerSecond = 1_000;
const mostDoubts = 10_000;
const mostWritten = 50_000;

/**
 * Tells a record that is missing, because it was evicted or deleted, from one that never was. The registry says in each grant whether
 * it has compared the store and knows that nothing is missing; from then on this gateway hears of each record that goes. Where
 * that does not do, the registry is asked for the record by its name, and looks it up in its database.
 */
export class MissingRecords {
  readonly #options: MissingRecordsOptions;
  readonly #asks = new TokenBucket(asksPerSecond, asksAtOnce, () => performance.now());
  readonly #fillingAsks = new TokenBucket(fillingAsksPerSecond, asksAtOnce, () => performance.now());
  #count = 0;
  /** Records of which a notice came: those among them that are absent may have been evicted or deleted. */
  readonly #doubts = new Set<string>();
  #store: BelievedState | null = null;
  #epoch = NaN;
  #firstBeat = Infinity;
  #isCompared = false;
  #answersAsks = false;
  /** What the registry has written since it began to fill the store. */
  readonly #written = new Set<string>();

  constructor(options: MissingRecordsOptions) {
    this.#options = options;
  }

  /** Notices came of these records. */
  changed(names: readonly string[]): void {
    for (const name of names) this.#doubts.add(name);
    if (this.#doubts.size <= mostDoubts) return;
    this.#doubts.clear();
    this.#epoch = NaN; // what the registry has compared by now says nothing of what was forgotten here
    this.#isCompared = false;
  }

  /**
   * Takes in what a beat found: nothing was missed between two in one epoch.
   * @param grant undefined where the store took no acknowledgement, so that it was not asked for
   */
  beat(store: BelievedState, grant: Grant | null | undefined, { beat, epoch }: FoundIn): void {
    const isOther = this.#store?.generation !== store.generation;
    if (isOther) this.#written.clear();
    this.#store = store;
    if (grant === undefined) {
      if (isOther) [this.#isCompared, this.#answersAsks] = [false, store.asks];
      return;
    }
    if (epoch !== this.#epoch) [this.#epoch, this.#firstBeat] = [epoch, beat];
    const own = grant?.generation === store.generation ? grant : null;
    // A registry of an earlier release says nothing of it, and answers nothing.
    this.#answersAsks = own === null ? store.asks : own.compared !== undefined;
    this.#isCompared = own?.compared === true && own.beat >= this.#firstBeat;
  }

  /**
   * Reads a record as the registry has it.
   * @param name with the prefix of the store
   * @param standing the generation, and the connections, for which what is found counts
   * @throws KeyStoreUnavailable where it is not known whether it is missing
   */
  async read(name: string, standing: { readonly generation: string; readonly epoch: number }): Promise<string | null> {
    const { link, names } = this.#options;
    const { generation } = standing;
    const record = names.recordOf(name);
    // While it is filled, the store may hold what was written before: only what the registry has written since counts.
    if (this.#store?.isFilling === true && !this.#written.has(record)) {
      const isPresent = await this.#ask(record, generation, this.#fillingAsks);
      if (!isPresent) return null;
      this.#noteWritten(record);
    }
    const text = await link.read(name, generation);
    if (text !== null || !(await this.#mayBeMissing(record, standing.epoch))) return text;
    if (!(await this.#ask(record, generation, this.#asks))) {
      this.#doubts.delete(record);
      return null;
    }
    const written = await link.read(name, generation);
    if (written === null)
      throw new KeyStoreUnavailable('a record was missing, was written again, and is missing again');
    return written;
  }

  /** A key that was asked for was written with its merchant. */
  writtenWith(name: string, merchantId: string): void {
    const { names } = this.#options;
    if (this.#store?.isFilling === true && this.#written.has(names.recordOf(name)))
      this.#noteWritten(names.recordOf(names.merchant(merchantId)));
  }

  #noteWritten(record: string): void {
    if (this.#written.size >= mostWritten) this.#written.clear();
    this.#written.add(record);
  }

  async #mayBeMissing(record: string, epoch: number): Promise<boolean> {
    if (!this.#answersAsks) return false;
    // The reply may have overtaken the notice.
    const isHeard = await this.#options.link.heard().then(
      () => true,
      () => false,
    );
    return !isHeard || !this.#isCompared || this.#epoch !== epoch || this.#doubts.has(record);
  }

  /** @returns whether there is such a record; it was written again then */
  async #ask(record: string, generation: string, asks: TokenBucket): Promise<boolean> {
    const { link, names, instanceId } = this.#options;
    if (!asks.take()) throw new KeyStoreUnavailable('records may be missing, and the registry is asked for too many');
    const began = performance.now();
    this.#count += 1;
    const name = names.ask(instanceId, this.#count, record);
    await link.write({ name, text: asked, lifetimeMilliseconds: 2 * longestMilliseconds });
    for (let pause = firstPauseMilliseconds; ; pause = Math.min(2 * pause, longestPauseMilliseconds)) {
      await wait(pause);
      const text = await link.text(name);
      if (text === answerText(true, generation)) return true;
      if (text === answerText(false, generation)) return false;
      if (text !== asked || performance.now() - began > longestMilliseconds)
        throw new KeyStoreUnavailable('records may be missing, and the registry does not say whether this one is');
    }
  }
}
