import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';

/**
 * KEYS: the mark, the names to write. ARGV: the expected mark, the texts. Returns 1 if all were written, or 0 if none
 * was.
 */
const writeIfMarkUnchanged = `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  for at = 2, #KEYS do redis.call('SET', KEYS[at], ARGV[at]) end
  return 1`;

/**
 * KEYS: the mark, the records. ARGV: the expected mark, the new mark, the records' texts. An empty text deletes its
 * record.
 */
const replaceIfMarkUnchanged = `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  for at = 2, #KEYS do
    local text = ARGV[at + 1]
    if text == '' then redis.call('DEL', KEYS[at]) else redis.call('SET', KEYS[at], text) end
  end
  redis.call('SET', KEYS[1], ARGV[2])
  return 1`;

/** One script for 50 records costs a third of 50 scripts, and does not block Redis noticeably. */
const recordsAtATime = 50;

/**
 * A fencing token next to the records, which changes with each write of them.
 * Redis replicates writes in their order, so a server with the newest mark has every earlier write. The newest mark is
 * missing on a server that was promoted without it, was emptied, or is written to by another registry.
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

  /** Writes this writer's first mark. */
  async begin(): Promise<void> {
    this.#writer = randomUUID();
    this.#count = 0;
    await this.#redis.set(this.#name, this.#text);
  }

  /**
   * The command that changes the mark. Send it after the commands that write records, and pass its reply to `changed`.
   */
  change(): readonly [string, ...string[]] {
    const before = this.#text;
    this.#count += 1;
    return ['EVAL', writeIfMarkUnchanged, '2', this.#name, this.#name, before, this.#text];
  }

  /** @throws Error if the mark was not the expected one */
  changed(reply: unknown): void {
    if (reply !== 1)
      throw new Error(
        'the writer mark has changed: the store was replaced or emptied, or another registry writes to it; reading it again',
      );
  }

  /** Writes all texts in one script if the mark is unchanged. @throws Error if it is not */
  async set(entries: readonly (readonly [name: string, text: string])[]): Promise<void> {
    const names = [this.#name, ...entries.map(([name]) => name)];
    const texts = [this.#text, ...entries.map(([, text]) => text)];
    this.changed(await this.#redis.eval(writeIfMarkUnchanged, names.length, ...names, ...texts));
  }

  /** Replaces records unconditionally and changes the mark, in batches. @throws Error as `set` */
  async replace(records: readonly { readonly name: string; readonly text: string }[]): Promise<void> {
    for (let start = 0; start < records.length; start += recordsAtATime) {
      const some = records.slice(start, start + recordsAtATime);
      const before = this.#text;
      this.#count += 1;
      const names = [this.#name, ...some.map(({ name }) => name)];
      const texts = [before, this.#text, ...some.map(({ text }) => text)];
      this.changed(await this.#redis.eval(replaceIfMarkUnchanged, names.length, ...names, ...texts));
    }
  }

  get #text(): string {
    return `${this.#writer}:${this.#count}`;
  }
}
