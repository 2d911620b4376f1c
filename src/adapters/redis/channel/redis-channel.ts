import { randomUUID } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import type { Cluster, Redis } from 'ioredis';
import { type GatewayMessage, maxMessageBytes, type RegistryChannel } from '../../../gateway/channel-ports.js';
import { connectAny, type RedisAddress } from '../connection.js';
import { RecordNames } from '../record-names.js';
import type { Seals } from '../seal.js';
import {
  checkpointStream,
  messageField,
  messageText,
  type MessageStream,
  mostTextBytes,
  readReply,
} from './message-text.js';

/** How long `send` waits for a reply. After that, `send` rejects and must be called again with the same message. */
const replyMilliseconds = 5_000;
const firstPauseMilliseconds = 10;
const longestPauseMilliseconds = 250;

/**
 * Lua: appends a message to the stream. If an earlier attempt appended the same message and its entry still exists,
 * appends nothing. Returns the entry's id, or false if the stream is full. XTRIM is not used, because it would delete
 * messages that the registry has not read.
 */
const script = `
if ARGV[1] ~= '' and #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 1 then return ARGV[1] end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[2]) then return false end
return redis.call('XADD', KEYS[1], '*', ARGV[3], ARGV[4])
`;

/**
 * Lua: returns a reply; false if the reply is missing or too large. Without the limit, an attacker who can write to
 * Redis could exhaust the gateway's memory with a huge reply.
 */
const replyScript = `
local reply = redis.call('GET', KEYS[1])
return reply and #reply <= tonumber(ARGV[1]) and reply
`;

/** Sends messages from a gateway to the registry through a Redis stream. */
export class RedisChannel implements RegistryChannel {
  readonly #redis: Redis | Cluster;
  readonly #names: RecordNames;
  readonly #seals: Seals;
  readonly #stream: MessageStream;
  /**
   * The stream entries of messages that have no reply yet, by message content. A repeated `send` finds its entry here,
   * so it does not append the message twice.
   */
  readonly #entries = new Map<string, { readonly id: string; readonly entry: string }>();

  /** @param seals must have a secret, because the registry rejects messages without a valid seal (HMAC) */
  constructor(address: RedisAddress, prefix: string, seals: Seals, stream = checkpointStream) {
    [this.#names, this.#seals, this.#stream] = [new RecordNames(prefix), seals, stream];
    this.#redis = connectAny(address, () => undefined); // ignore connection errors: a failed `send` rejects anyway
  }

  async send({ kind, body }: GatewayMessage): Promise<string> {
    if (body.length > maxMessageBytes)
      throw new Error(`the message to the registry is longer than ${maxMessageBytes} bytes`);
    const key = `${kind}\n${body}`;
    const { id, entry: former } = this.#entries.get(key) ?? { id: randomUUID(), entry: '' };
    const { maxMessages } = this.#stream;
    const stream = this.#names[this.#stream.name];
    const text = messageText(this.#seals, stream, { id, kind, body });
    const entry = await this.#redis.eval(script, 1, stream, former, maxMessages, messageField, text).catch(unavailable);
    if (typeof entry !== 'string')
      throw new Error('Redis has too many unread messages to the registry; check that the registry runs');
    this.#entries.set(key, { id, entry });
    const reply = await this.#replyTo(id);
    this.#entries.delete(key);
    return reply;
  }

  close(): Promise<void> {
    this.#redis.disconnect();
    return Promise.resolve();
  }

  async #replyTo(id: string): Promise<string> {
    const name = this.#names.reply(id);
    const until = performance.now() + replyMilliseconds;
    for (
      let pause = firstPauseMilliseconds;
      performance.now() < until;
      pause = Math.min(2 * pause, longestPauseMilliseconds)
    ) {
      await wait(pause);
      const text = await this.#redis.eval(replyScript, 1, name, mostTextBytes).catch(unavailable);
      const reply = readReply(this.#seals, name, typeof text === 'string' ? text : null);
      if (reply !== null) return reply;
    }
    throw new Error('the registry does not reply');
  }
}

function unavailable(cause: unknown): never {
  const reason = (cause as Error).message;
  throw new Error(`cannot exchange messages with the registry through Redis (${reason}): check Redis`, { cause });
}
