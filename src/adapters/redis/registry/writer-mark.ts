import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';

/**
 * Lua: compares the writer mark (a fencing token) with the expected mark. If both marks are equal, writes the texts and
 * returns 1. Otherwise writes nothing and returns 0.
 * KEYS: the mark, the Redis keys to write. ARGV: the expected mark, the texts.
 */
const writeIfMarkUnchanged = `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  for at = 2, #KEYS do redis.call('SET', KEYS[at], ARGV[at]) end
  return 1`;

/**
 * Lua: compares the writer mark (a fencing token) with the expected mark. If both marks are equal, replaces the records
 * and the mark, and returns 1. Otherwise changes nothing and returns 0.
 * KEYS: the mark, the records. ARGV: the expected mark, the new mark, the records' texts; an empty text deletes its
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

/**
 * The number of records per script. One script for 50 records costs a third as much as 50 scripts, and blocks Redis
 * only briefly.
 */
const recordsAtATime = 50;

/**
 * A fencing token in Redis, which changes with each write of records. Redis replicates writes in order, so a server
 * with the newest mark has all earlier writes. A server lacks the newest mark if it is a promoted replica that lacks
 * writes, if it was emptied, or if another registry wrote to it.
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

  /** Makes this process the current writer: replaces any stored mark with a new mark. */
  async begin(): Promise<void> {
    this.#writer = randomUUID();
    this.#count = 0;
    await this.#redis.set(this.#name, this.#text);
  }

  /**
   * Returns the command that changes the mark. This command must be sent after the commands that write records, and its
   * reply must be passed to `changed`.
   */
  change(): readonly [string, ...string[]] {
    const before = this.#text;
    this.#count += 1;
    return ['EVAL', writeIfMarkUnchanged, '2', this.#name, this.#name, before, this.#text];
  }

  /**
   * Checks the reply to the command of `change`.
   * @throws Error if the mark was not the expected one
   */
  changed(reply: unknown): void {
    if (reply !== 1)
      throw new Error(
        'the store changed unexpectedly: Redis was replaced or emptied, or another registry writes to it; reading the store again',
      );
  }

  /**
   * Writes all texts in one script if the mark in Redis is this writer's newest mark.
   * @throws Error if the mark is missing or has changed
   */
  async set(entries: readonly (readonly [name: string, text: string])[]): Promise<void> {
    const names = [this.#name, ...entries.map(([name]) => name)];
    const texts = [this.#text, ...entries.map(([, text]) => text)];
    this.changed(await this.#redis.eval(writeIfMarkUnchanged, names.length, ...names, ...texts));
  }

  /**
   * Replaces records, in batches, and changes the mark. Does not check the records' old texts.
   * @throws Error if the mark in Redis is not this writer's newest mark
   */
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
