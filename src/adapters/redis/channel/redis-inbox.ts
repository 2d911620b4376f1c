import type { Cluster, Redis } from 'ioredis';
import { type GatewayInbox, maxMessageBytes } from '../../../gateway/channel-ports.js';
import { connectAny, type RedisAddress } from '../connection.js';
import { RecordNames } from '../record-names.js';
import type { Seals } from '../seal.js';
import { checkpointStream, messageField, mostTextBytes, readMessage, replyText } from './message-text.js';

const pollMilliseconds = 100;
const messagesAtATime = 100;
/** How long a message can fail, while other messages succeed, before it is discarded. */
const failingMilliseconds = 10_000;
const mostFailing = 1_000;
/** Lifetime of a reply. It is long, so that a gateway can still read the reply after a stall. */
const replyMilliseconds = 60_000;

/**
 * Lua: reads the oldest entries of the stream. Returns an oversized entry without its fields; otherwise a client that
 * can write to Redis could exhaust the registry's memory.
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

/** Events that are written to the operator's log. */
export interface InboxEvents {
  /**
   * Called when a message is discarded: it is malformed or too large, its seal (HMAC) is missing or invalid, no handler
   * exists for its kind, or its handler failed repeatedly.
   */
  readonly onRefused: (why: string) => void;
  /**
   * Called each time the handler of a message fails. The message is retried until it succeeds or is discarded. Also
   * called when Redis replies with an error to a command that reads the stream.
   */
  readonly onFailure: (error: unknown) => void;
  /** Called when the reply to a handled message is too long to be sent. The gateway then sends the message again. */
  readonly onLongReply: (kind: string) => void;
}

/** The registry's receiver for the messages of all gateways. It polls the Redis stream every 100 ms. */
export class RedisInbox implements GatewayInbox {
  readonly #redis: Redis | Cluster;
  readonly #names: RecordNames;
  readonly #seals: Seals;
  readonly #stream: string;
  readonly #events: InboxEvents;
  readonly #failingMilliseconds: number;
  /**
   * When each failing message first failed, by message id. The entry of a discarded message stays. Such a message gets
   * no reply, so the gateway sends it again with the same id, and the time still counts from its first failure.
   */
  readonly #failingSince = new Map<string, number>();
  #lastTakenAt = -Infinity;
  #handlers: Parameters<GatewayInbox['serve']>[0] = {};
  #timer: NodeJS.Timeout | null = null;
  #polling: Promise<void> | null = null;
  #workingSince: number | null = null;
  /**
   * The last error reply to a read of the stream. It is stored to report a repeated error only once. Null after a
   * successful read.
   */
  #refusal: string | null = null;

  /** @param failing how many milliseconds a message can fail, while other messages succeed, before it is discarded */
  constructor(
    address: RedisAddress,
    prefix: string,
    seals: Seals,
    events: InboxEvents,
    stream = checkpointStream,
    failing = failingMilliseconds,
  ) {
    [this.#names, this.#seals, this.#events] = [new RecordNames(prefix), seals, events];
    this.#stream = this.#names[stream.name];
    this.#failingMilliseconds = failing;
    this.#redis = connectAny(address, () => undefined); // no handler for errors: the record store reports outages
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

  /**
   * Handles all entries, oldest first. A failed entry stays in the stream for the next poll and does not block later
   * entries.
   */
  async #poll(): Promise<void> {
    const stream = this.#stream;
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
      this.#workingSince = hasFailed ? null : (this.#workingSince ?? performance.now());
      this.#refusal = null;
    } catch (error) {
      this.#workingSince = null; // null (not working) until a poll succeeds
      // Report only an error reply for this stream, such as WRONGTYPE. The record store reports outages.
      const refusal = error instanceof Error && error.name === 'ReplyError' ? error.message : null;
      if (refusal !== null && refusal !== this.#refusal) this.#events.onFailure(error);
      this.#refusal = refusal ?? this.#refusal;
    }
  }

  /**
   * Handles one entry of the stream.
   * @returns whether the entry can be deleted, because its message was handled or discarded
   */
  async #handle([, fields]: Entry): Promise<boolean> {
    const text = fields[0] === messageField ? (fields[1] ?? '') : '';
    const message = readMessage(this.#seals, this.#stream, text);
    const handler = message && Object.hasOwn(this.#handlers, message.kind) ? this.#handlers[message.kind] : undefined;
    if (message === null || handler === undefined) {
      this.#events.onRefused(
        message === null
          ? `the message is malformed${this.#seals.areOn ? ', or it is not sealed with the secret in keys.recordSecretFile' : ''}`
          : 'the kind of the message is unknown: a newer release of the gateway may have sent it',
      );
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
      this.#events.onRefused(
        'processing the message failed repeatedly, although other messages were processed; the message was discarded',
      );
      return true;
    }
    const name = this.#names.reply(message.id);
    if (reply.length > maxMessageBytes) this.#events.onLongReply(message.kind);
    else await this.#redis.set(name, replyText(this.#seals, name, reply), 'PX', replyMilliseconds);
    return true;
  }

  /**
   * Whether to discard a failing message: it has failed for too long, and other messages have succeeded since its first
   * failure. So the message itself, and not the database, causes the failures.
   */
  #isHopeless(id: string): boolean {
    const now = performance.now();
    const since = this.#failingSince.get(id) ?? now;
    this.#failingSince.set(id, since);
    const [oldest] = this.#failingSince.keys();
    if (this.#failingSince.size > mostFailing && oldest !== undefined) this.#failingSince.delete(oldest);
    return this.#lastTakenAt > since && now - since > this.#failingMilliseconds;
  }
}
