import type { Cluster, Redis } from 'ioredis';
import type { GatewayInbox } from '../../../gateway/channel-ports.js';
import { connectAny, type RedisAddress } from '../connection.js';
import { RecordNames } from '../record-names.js';
import type { Seals } from '../seal.js';
import { messageField, maxMessageBytes, mostTextBytes, readMessage, replyText } from './message-text.js';

const pollMilliseconds = 100;
const messagesAtATime = 100;
/** A message that fails for so long, while others succeed, is discarded. Its gateway sends it again. */
const failingMilliseconds = 10_000;
const mostFailing = 1_000;
/** Lifetime of a reply: a gateway that was stalled can still read it. */
const replyMilliseconds = 60_000;

/**
 * Reads the oldest entries of the stream. An entry larger than any message comes without its fields: a client that can write
 * to Redis could otherwise exhaust the registry's memory.
 */
const readScript = `
local entries = redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
for _, entry in ipairs(entries) do
  local bytes = 0
  for _, field in ipairs(entry[2]) do bytes = bytes + #field end
  if bytes > tonumber(ARGV[3]) then entry[2] = {} end
end
return entries
`;

/** An entry as XRANGE returns it: its id, then alternating fields and values. */
type Entry = readonly [id: string, fields: readonly string[]];

/** Events for the operator's log. */
export interface InboxEvents {
  /** A message was discarded: it is not sealed with the secret, or no handler is registered for its kind. */
  readonly onRefused: (why: string) => void;
  /** A message could not be handled and will be retried, or Redis refuses to read the stream. */
  readonly onFailure: (error: unknown) => void;
}

/** The registry's end of the channels of all gateways. It polls the stream in Redis every 100 ms. */
export class RedisInbox implements GatewayInbox {
  readonly #redis: Redis | Cluster;
  readonly #names: RecordNames;
  readonly #seals: Seals;
  readonly #events: InboxEvents;
  readonly #failingMilliseconds: number;
  /** When the handler of a message, by the message's id, failed for the first time. Gateways keep the id when they send again. */
  readonly #failingSince = new Map<string, number>();
  #lastTakenAt = -Infinity;
  #handlers: Parameters<GatewayInbox['serve']>[0] = {};
  #timer: NodeJS.Timeout | null = null;
  #polling: Promise<void> | null = null;
  #workingSince: number | null = null;
  /** The error with which Redis refuses the stream; null without one. */
  #refusal: string | null = null;

  /** @param failing milliseconds after which a message that fails, while others are taken, is removed */
  constructor(address: RedisAddress, prefix: string, seals: Seals, events: InboxEvents, failing = failingMilliseconds) {
    [this.#names, this.#seals, this.#events] = [new RecordNames(prefix), seals, events];
    this.#failingMilliseconds = failing;
    this.#redis = connectAny(address, () => undefined); // the record store reports outages
  }

  get workingSince(): number | null {
    return this.#workingSince;
  }

  serve(handlers: Parameters<GatewayInbox['serve']>[0]): void {
    this.#handlers = handlers;
    this.#timer ??= setInterval(() => {
      this.#polling ??= this.#poll().finally(() => (this.#polling = null));
    }, pollMilliseconds).unref();
  }

  async close(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    await this.#polling;
    this.#redis.disconnect();
  }

  /** Handles all entries, oldest first. An entry that fails stays in the stream and does not block later entries. */
  async #poll(): Promise<void> {
    const stream = this.#names.messages;
    let hasFailed = false;
    try {
      if (this.#redis.status !== 'ready') throw new Error('not connected to Redis');
      for (let from = '-'; ;) {
        const limits = [messagesAtATime, mostTextBytes + messageField.length];
        const entries = (await this.#redis.eval(readScript, 1, stream, from, ...limits)) as Entry[];
        for (const entry of entries) {
          if (await this.#handle(entry)) await this.#redis.xdel(stream, entry[0]);
          else hasFailed = true;
        }
        const last = entries.at(-1)?.[0];
        if (last === undefined || entries.length < messagesAtATime) break;
        from = `(${last}`;
      }
      this.#workingSince = hasFailed ? null : (this.#workingSince ?? Date.now());
      this.#refusal = null;
    } catch (error) {
      this.#workingSince = null; // the next poll shows whether Redis is back
      // The record store reports outages. It does not report an error reply for this stream, such as WRONGTYPE.
      const refusal = error instanceof Error && error.name === 'ReplyError' ? error.message : null;
      if (refusal !== null && refusal !== this.#refusal) this.#events.onFailure(error);
      this.#refusal = refusal ?? this.#refusal;
    }
  }

  /** @returns whether the entry can be deleted: its message was handled or discarded */
  async #handle([, fields]: Entry): Promise<boolean> {
    const text = fields[0] === messageField ? (fields[1] ?? '') : '';
    const message = readMessage(this.#seals, this.#names.messages, text);
    const handler = message && Object.hasOwn(this.#handlers, message.kind) ? this.#handlers[message.kind] : undefined;
    if (message === null || handler === undefined) {
      this.#events.onRefused(message === null ? 'it is not sealed with the record secret' : 'its kind is unknown');
      return true;
    }
    let reply: string;
    try {
      reply = await handler(message.body);
      this.#failingSince.delete(message.id);
      this.#lastTakenAt = performance.now();
    } catch (error) {
      this.#events.onFailure(error);
      if (!this.#isHopeless(message.id)) return false;
      this.#events.onRefused('it fails again and again, while others are taken');
      return true;
    }
    const name = this.#names.reply(message.id);
    if (reply.length <= maxMessageBytes)
      await this.#redis.set(name, replyText(this.#seals, name, reply), 'PX', replyMilliseconds);
    return true;
  }

  /** Whether a message fails by itself: the database works, since other messages were taken after its first failure. */
  #isHopeless(id: string): boolean {
    const now = performance.now();
    const since = this.#failingSince.get(id) ?? now;
    this.#failingSince.set(id, since);
    const [oldest] = this.#failingSince.keys();
    if (this.#failingSince.size > mostFailing && oldest !== undefined) this.#failingSince.delete(oldest);
    return this.#lastTakenAt > since && now - since > this.#failingMilliseconds;
  }
}
