import { PassThrough } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import type { Clock, Timers } from '../../gateway/store-ports.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import { callerOf } from '../administrators/request-author.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Routes } from '../routes.js';

const pollMilliseconds = 500;
/**
 * Interval at which each open stream gets a keep-alive comment and the credential of its caller is checked again.
 */
const checkMilliseconds = 15_000;
/** Maximum number of events that one poll of the database reads. Further events follow with the next poll. */
const mostEvents = 500;
const mostStreams = 500;
const mostStreamsOfCaller = 20;
/** Maximum number of streams of one merchant's members, so that other merchants and operators get streams too. */
const mostStreamsOfMerchant = 100;
/**
 * Maximum number of bytes that are buffered for a client. A client that reads too slowly for this limit is
 * disconnected. It misses no change, because it reads all records again after it has reconnected.
 */
const mostBufferedBytes = 256 * 1024;
/**
 * Kinds of events after which a caller might have lost its rights. After such an event, the credentials of all streams
 * are checked at once.
 */
const endings: ReadonlySet<string> = new Set(['sign-in.ended', 'administrator.changed', 'token.revoked']);

/** A change that a stream announces. */
interface Change {
  readonly seq: number;
  readonly action: string;
  readonly merchant_id: string;
  readonly key_id: string | null;
}

/** An open stream and the caller who reads it. */
interface OpenStream {
  readonly out: PassThrough;
  readonly caller: string;
  /** The only merchant whose changes the caller is allowed to see; null: the changes of all merchants. */
  readonly merchantId: string | null;
  readonly isStillAllowed: () => Promise<boolean>;
}

/** Dependencies of the stream. */
interface StreamOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  readonly timers: Timers;
}

/**
 * Adds the route of server-sent events that say which records changed, so that a page of the console reads those
 * records again. An event contains ids and the kind of change, never a record. One poll of the database serves all
 * streams of this process.
 */
export function streamRoutes(options: StreamOptions): Routes {
  const streams = new Streams(options);
  return (app) => {
    // Closes the streams. Otherwise the app could not close while a stream is open.
    app.addHook('preClose', (done) => {
      streams.close();
      done();
    });
    app.get(
      '/stream',
      {
        // Without this option, a HEAD request would open a stream that no client reads.
        exposeHeadRoute: false,
        schema: { querystring: noQuery },
        config: {
          operation: { summary: 'Changes as they happen (server-sent events)', isStream: true },
          access: { permission: 'events:read', merchant: 'own' },
        },
      },
      async (request, reply) => {
        const out = await streams.open(request);
        return reply
          .headers({ 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' })
          .send(out);
      },
    );
  };
}

class Streams {
  readonly #options: StreamOptions;
  readonly #open = new Set<OpenStream>();
  /** The sequence number of the last event that was read. The streams announce only later events. */
  #seq = 0;
  #checkedAt = 0;
  #cancel: (() => void) | null = null;
  #isClosed = false;

  constructor(options: StreamOptions) {
    this.#options = options;
  }

  async open(request: FastifyRequest): Promise<PassThrough> {
    const { name, administratorId, merchantId } = callerOf(request);
    const caller = administratorId ?? name;
    const open = [...this.#open];
    const own = open.filter((stream) => stream.caller === caller);
    const ofMerchant = merchantId === null ? [] : open.filter((stream) => stream.merchantId === merchantId);
    const reached =
      own.length >= mostStreamsOfCaller
        ? `You have ${own.length} open event streams, the maximum: close one of them`
        : ofMerchant.length >= mostStreamsOfMerchant
          ? `The members of your merchant have ${ofMerchant.length} open event streams, the maximum: close one of them`
          : open.length >= mostStreams
            ? `This registry has ${open.length} open event streams, the maximum: try again later`
            : null;
    if (reached !== null) throw new Refusal(429, reached, [], 'too_many_streams');
    if (this.#isClosed) throw Refusal.unavailable();
    const stream = { out: new PassThrough(), caller, merchantId, isStillAllowed: request.isStillAllowed };
    this.#open.add(stream);
    stream.out.once('close', () => this.#open.delete(stream));
    request.raw.socket.once('close', () => stream.out.destroy());
    if (this.#cancel === null) await this.#startPolls(stream);
    // The client reads all records when it gets this event. The stream announces each later change, so the client
    // misses no change.
    stream.out.write(`retry: 2000\nid: ${this.#seq}\nevent: open\ndata: {}\n\n`);
    return stream.out;
  }

  async #startPolls({ out }: OpenStream): Promise<void> {
    let seq: number;
    try {
      seq = await this.#lastSeq();
    } catch (error) {
      out.destroy(); // otherwise the stream would count until the client closes its connection
      throw error;
    }
    // Another stream may have started the polls in the meantime. A higher `#seq` would skip changes for that stream.
    if (this.#cancel !== null) return;
    this.#seq = seq;
    this.#checkedAt = this.#options.clock.now();
    this.#cancel = this.#later();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel?.();
    for (const { out } of this.#open) out.end();
  }

  #later(): () => void {
    return this.#options.timers.after(pollMilliseconds, () => {
      void this.#poll().finally(() => {
        this.#cancel = this.#open.size === 0 || this.#isClosed ? null : this.#later();
      });
    });
  }

  async #poll(): Promise<void> {
    const { database, clock } = this.#options;
    let changes: Change[];
    try {
      changes = await database
        .selectFrom('events')
        .select(['seq', 'action', 'merchant_id', 'key_id'])
        .where('seq', '>', this.#seq)
        .orderBy('seq')
        .limit(mostEvents)
        .execute();
    } catch {
      return; // the next poll reads the changes; clients notice an outage by their own requests
    }
    this.#seq = changes.at(-1)?.seq ?? this.#seq;
    const now = clock.now();
    const isDue = now - this.#checkedAt >= checkMilliseconds || now < this.#checkedAt;
    if (isDue || changes.some(({ action }) => endings.has(action))) await this.#endRefused();
    if (isDue) this.#checkedAt = now;
    for (const stream of this.#open) {
      const text = changes.filter((change) => isFor(stream, change)).map(asText);
      // A write would destroy a stream that has just ended, before the client has read the last event.
      if (isDue && stream.out.writable) text.push(': still here\n\n');
      if (text.length > 0) stream.out.write(text.join(''));
      if (stream.out.writableLength > mostBufferedBytes) stream.out.destroy();
    }
  }

  /**
   * Ends each stream whose caller is no longer allowed to read it. Also ends a stream if the check itself fails, for
   * example because the database is unavailable.
   */
  async #endRefused(): Promise<void> {
    await Promise.all(
      [...this.#open].map(async (stream) => {
        const isAllowed = await stream.isStillAllowed().catch(() => false);
        if (!isAllowed) stream.out.end('event: ended\ndata: {}\n\n');
      }),
    );
  }

  async #lastSeq(): Promise<number> {
    const last = this.#options.database.selectFrom('events').select((it) => it.fn.max('seq').as('seq'));
    return (await last.executeTakeFirst())?.seq ?? 0;
  }
}

function isFor({ merchantId, out }: OpenStream, { merchant_id }: Change): boolean {
  return out.writable && (merchantId === null || merchantId === merchant_id);
}

function asText({ seq, action, merchant_id, key_id }: Change): string {
  const data = JSON.stringify({ action, merchantId: merchant_id === '' ? null : merchant_id, keyId: key_id });
  return `id: ${seq}\nevent: change\ndata: ${data}\n\n`;
}
