import type { PresentRecords, RecordAsk, RecordInbox } from '../../registry/ports.js';

/** What stands under the name of a question until it is answered. */
export const asked = 'asked';
/** How long an answer stands. */
const answerMilliseconds = 5_000;
/** For how long a gateway waits for an answer, and a little more. */
const waitMilliseconds = 2_000;
const mostAsks = 10_000;

/** A command about one name. */
interface NamedCommand {
  readonly name: string;
  readonly command: readonly string[];
}

/** What the registry writes in place of a question: the record was written again, or there is none. */
export function answerText(isPresent: boolean, generation: string): string {
  return `${isPresent ? 'written' : 'absent'}:${generation}`;
}

/** What gateways ask for because they do not find it. It is heard of by notices; an answer that is written, or ends, is none. */
export class AskInbox implements RecordInbox {
  readonly #prefix: string;
  readonly #call: (commands: readonly NamedCommand[]) => Promise<readonly unknown[]>;
  readonly #asks = new Map<string, RecordAsk & { readonly at: number }>();
  #heard = new Set<string>();
  onWork: () => void = () => undefined;

  /**
   * @param prefix what the name of every question begins with; behind it come the gateway, a number and the record
   * @param call has commands carried out
   */
  constructor(prefix: string, call: (commands: readonly NamedCommand[]) => Promise<readonly unknown[]>) {
    [this.#prefix, this.#call] = [prefix, call];
  }

  /** Notices came of these names. */
  heard(names: readonly string[]): void {
    const asks = names.filter((name) => name.startsWith(this.#prefix));
    if (asks.length === 0) return;
    if (this.#heard.size === 0) setImmediate(() => void this.#take());
    for (const name of asks) this.#heard.add(name);
  }

  take(most: number): readonly RecordAsk[] {
    const taken = [...this.#asks.values()].slice(0, most);
    for (const { name } of taken) this.#asks.delete(name);
    return taken.filter(({ at }) => performance.now() - at < waitMilliseconds);
  }

  async answer(asks: readonly RecordAsk[], { names, generation }: PresentRecords): Promise<void> {
    const calls = asks.map(({ name, record }) => {
      const text = answerText(names.has(record), generation);
      return { name, command: ['SET', name, text, 'PX', String(answerMilliseconds)] };
    });
    await this.#call(calls);
  }

  async #take(): Promise<void> {
    const names = [...this.#heard].slice(0, mostAsks);
    this.#heard = new Set();
    try {
      const texts = await this.#call(names.map((name) => ({ name, command: ['GET', name] })));
      // Of a registry that does not project nobody takes them.
      if (this.#asks.size > mostAsks) this.#asks.clear();
      const isAsked = names.filter((_, index) => texts[index] === asked);
      for (const name of isAsked) {
        const record = /^[\w-]+:\d+:(.+)$/s.exec(name.slice(this.#prefix.length))?.[1];
        if (record !== undefined) this.#asks.set(name, { name, record, at: performance.now() });
      }
      if (isAsked.length > 0) this.onWork();
    } catch {
      // Whoever asked gets no answer, and asks again.
    }
  }
}
