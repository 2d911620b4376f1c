import type { RecordAsk, RecordInbox } from '../../registry/ports.js';
import { answerText, asked, mostAskMilliseconds } from './gateway-records.js';
import type { Seals } from './seal.js';

/** A command about one name. */
interface NamedCommand {
  readonly name: string;
  readonly command: readonly string[];
}

/** Nobody asks for more at a time; whoever was left out asks again. */
const mostAsks = 10_000;

/** What gateways ask for because they do not find it. It is heard of by notices. */
export class AskInbox implements RecordInbox {
  readonly #prefix: string;
  readonly #seals: Seals;
  readonly #call: (commands: readonly NamedCommand[]) => Promise<readonly unknown[]>;
  readonly #asks = new Map<string, RecordAsk & { readonly at: number }>();
  #heard = new Set<string>();
  onWork: () => void = () => undefined;

  /**
   * @param prefix what the name of every question begins with; behind it come the gateway, a number and the record
   * @param call has commands carried out
   */
  constructor(prefix: string, seals: Seals, call: (commands: readonly NamedCommand[]) => Promise<readonly unknown[]>) {
    [this.#prefix, this.#seals, this.#call] = [prefix, seals, call];
  }

  /** Notices came of these names: of questions, and of answers. */
  heard(names: readonly string[]): void {
    for (const name of names) {
      if (!name.startsWith(this.#prefix) || this.#heard.size >= mostAsks) continue;
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
    const calls = asks.map(({ name, record }) => {
      const text = this.#seals.seal(name, answerText(present.has(record), generation));
      return { name, command: ['SET', name, text, 'PX', String(mostAskMilliseconds)] };
    });
    await this.#call(calls);
  }

  async #read(): Promise<void> {
    const names = [...this.#heard];
    this.#heard = new Set();
    try {
      const texts = await this.#call(names.map((name) => ({ name, command: ['GET', name] })));
      // Of a registry that does not project nobody takes them.
      if (this.#asks.size > mostAsks) this.#asks.clear();
      const isAsked = names.filter((_, index) => texts[index] === asked);
      for (const name of isAsked) {
        const record = /^[\w-]{1,64}:\d{1,16}:(.{1,100})$/s.exec(name.slice(this.#prefix.length))?.[1];
        if (record !== undefined) this.#asks.set(name, { name, record, at: performance.now() });
      }
      if (isAsked.length > 0) this.onWork();
    } catch {
      // Whoever asked gets no answer, and asks again.
    }
  }
}
