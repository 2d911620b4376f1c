import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';

/** KEYS: the mark, what is written. ARGV: what the mark must say, the texts. Returns whether all were written, or nothing was. */
const whileItStands = `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  for at = 2, #KEYS do redis.call('SET', KEYS[at], ARGV[at]) end
  return 1`;

/** KEYS: the mark, the records. ARGV: what the mark must say and will say, the texts of the records: an empty one takes its record away. */
const replaceWhileItStands = `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  for at = 2, #KEYS do
    local text = ARGV[at + 1]
    if text == '' then redis.call('DEL', KEYS[at]) else redis.call('SET', KEYS[at], text) end
  end
  redis.call('SET', KEYS[1], ARGV[2])
  return 1`;

/** One script for so many costs a third of one for each, and does not hold up Redis. */
const recordsAtATime = 50;

/**
 * A mark beside the records that changes with each write of them. Redis copies what it is told to its replicas in the order in which it
 * was told: a server that has the newest mark has everything that was written before it. One that took another's place without
 * that, was emptied or is written to by another registry has not.
 */
export class WriterMark {
  readonly #redis: Redis;
  readonly #name: string;
  #writer = '';
  #count = 0;

  constructor(redis: Redis, name: string) {
    this.#redis = redis;
    this.#name = name;
  }

  /** Puts a mark of its own. */
  async begin(): Promise<void> {
    this.#writer = randomUUID();
    this.#count = 0;
    await this.#redis.set(this.#name, this.#text);
  }

  /** The command, behind those that write records, that changes the mark; its answer is for `changed`. */
  change(): readonly [string, ...string[]] {
    const before = this.#text;
    this.#count += 1;
    return ['EVAL', whileItStands, '2', this.#name, this.#name, before, this.#text];
  }

  /** @throws Error where the mark was not there to be changed, or what depends on it to be written */
  changed(answer: unknown): void {
    if (answer !== 1)
      throw new Error(
        'the store is not the one that was written to, or another registry writes to it; it is looked at anew',
      );
  }

  /** Writes texts where the mark is what it was changed to, in their order and at once. @throws Error where it is not */
  async set(entries: readonly (readonly [name: string, text: string])[]): Promise<void> {
    const names = [this.#name, ...entries.map(([name]) => name)];
    const texts = [this.#text, ...entries.map(([, text]) => text)];
    this.changed(await this.#redis.eval(whileItStands, names.length, ...names, ...texts));
  }

  /** Replaces records, whatever is there, and changes the mark, some at once. @throws Error as `set` */
  async replace(records: readonly { readonly name: string; readonly text: string }[]): Promise<void> {
    for (let start = 0; start < records.length; start += recordsAtATime) {
      const some = records.slice(start, start + recordsAtATime);
      const before = this.#text;
      this.#count += 1;
      const names = [this.#name, ...some.map(({ name }) => name)];
      const texts = [before, this.#text, ...some.map(({ text }) => text)];
      this.changed(await this.#redis.eval(replaceWhileItStands, names.length, ...names, ...texts));
    }
  }

  get #text(): string {
    return `${this.#writer}:${this.#count}`;
  }
}
