import type { RecordAsk, RecordInbox } from '../../../gateway/store-ports.js';
import { answerText, asked, mostAskMilliseconds } from '../gateway-records.js';
import type { AcknowledgementText } from '../records-link.js';
import type { Seals } from '../seal.js';

/** The store that gateways ask in. Names are full names. */
export interface AskSource {
  /** The stored bytes in the order of the names; null for what is not there. */
  read(names: readonly string[]): Promise<readonly (Buffer | null)[]>;
  /** Writes texts, which end by themselves. */
  write(texts: readonly AcknowledgementText[]): Promise<unknown>;
}

/** The most questions that are kept; a gateway whose question was dropped asks again. */
const mostAsks = 10_000;
/** No gateway asks by a longer name. */
const longestName = 256;

/** The questions of gateways for records that they do not find. Redis sends a notice of each. */
export class AskInbox implements RecordInbox {
  readonly #prefix: string;
  readonly #seals: Seals;
  readonly #source: AskSource;
  readonly #asks = new Map<string, RecordAsk & { readonly at: number }>();
  #heard = new Set<string>();
  onWork: () => void = () => undefined;

  /** @param prefix what the name of every question begins with; behind it come the gateway, a number and the record */
  constructor(prefix: string, seals: Seals, source: AskSource) {
    [this.#prefix, this.#seals, this.#source] = [prefix, seals, source];
  }

  /** Notices came of these names: of questions, and of answers. */
  heard(names: readonly string[]): void {
    for (const name of names) {
      if (!name.startsWith(this.#prefix) || name.length > longestName || this.#heard.size >= mostAsks) continue;
      if (this.#heard.size === 0) setImmediate(() => void this.#read());
      this.#heard.add(name);
    }
  }

  take(most: number): readonly RecordAsk[] {
    const taken = [...this.#asks.values()].slice(0, most);
    for (const { name } of taken) this.#asks.delete(name);
    return taken.filter(({ at }) => performance.now() - at < mostAskMilliseconds);
  }

  async answer(asks: readonly RecordAsk[], present: ReadonlySet<string>, generation: string): Promise<void> {
    const texts = asks.map(({ name, record }) => ({
      ...{ name, text: this.#seals.seal(name, answerText(present.has(record), generation)) },
      lifetimeMilliseconds: mostAskMilliseconds,
    }));
    // Whoever gets no answer asks again; what was projected beside it is none the worse.
    await this.#source.write(texts).catch(() => undefined);
  }

  async #read(): Promise<void> {
    const names = [...this.#heard];
    this.#heard = new Set();
    const texts = await this.#source.read(names).catch(() => []);
    // Of a registry that does not project nobody takes them.
    if (this.#asks.size > mostAsks) this.#asks.clear();
    let isAsked = false;
    for (const [index, name] of names.entries()) {
      if (texts[index]?.toString('utf8') !== asked) continue;
      const record = /^[\w-]{1,64}:\d{1,16}:(.{1,100})$/s.exec(name.slice(this.#prefix.length))?.[1];
      if (record === undefined) continue;
      this.#asks.set(name, { name, record, at: performance.now() });
      isAsked = true;
    }
    if (isAsked) this.onWork();
  }
}
