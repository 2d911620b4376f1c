import type { Readable } from 'node:stream';
import type { Cancellation } from '../cancellation.js';
import type { GatewayError } from '../errors.js';
import type { UpstreamAnswer } from './answer-reader.js';
import type { BodyBuffers } from './body-buffers.js';
import { bufferBody } from './buffer-body.js';
import { ConnectionPool } from './connection-pool.js';
import { FairShare } from './fair-share.js';
import { UpstreamCall } from './upstream-call.js';
import type { CallTo } from './upstream-call.js';

/** How an upstream is reached, and what it may cost. */
export interface UpstreamOptions {
  readonly name: string;
  /** Origin: `http://host:port` or `https://host:port`. */
  readonly url: string;
  /** How long it may be silent, with a request and with the rest of an answer. */
  readonly timeoutSeconds: number;
  readonly maxInFlight: number;
  /** How many idle connections may be bound to merchants. */
  readonly boundIdle: number;
  /** Whether it reads every request body, so that merchants can share connections behind one. */
  readonly readsBodies: boolean;
  /** PEM of the authority that signed its certificate; null: those that Node trusts. */
  readonly ca: Buffer | null;
  readonly maxBodyBytes: number;
  /** How many bytes a second a client has to send of a long body, on average over some seconds. */
  readonly minBodyBytesPerSecond: number;
  /** Where bodies wait until they have arrived. */
  readonly buffers: BodyBuffers;
  /** How long a connection rests before it carries another request, in milliseconds. */
  readonly restMilliseconds: number;
  /** Called when it sent bytes that no request had asked for. */
  readonly onUnsolicited: () => void;
}

/** A request as the upstream gets it. */
export interface UpstreamRequest {
  /** Whose it is. */
  readonly merchantId: string;
  readonly method: string;
  /** Path and query, as they came. */
  readonly target: string;
  /** Names and values, flat. */
  readonly headers: string[];
  /** The client's body; null where it sent none. */
  readonly body: Readable | null;
  /** How long the client says that it is; null where it does not say. */
  readonly bodyBytes: number | null;
  readonly cancellation: Cancellation;
  /** Hears the size of each piece of the body that is passed on. */
  onBody(bytes: number): void;
  /** Takes the body, where all of it has come already; null where some is to be waited for, or there is none. */
  bodyAtHand(): Buffer | null;
  /** Whether all of the body has come, asked when it ends: half of one must not pass for a whole one. */
  bodyIsWhole(): boolean;
  /** Hears that a connection carries it: from then on nobody knows whether it was carried out. */
  onStart(): void;
  /** Hears that no more of a body that was passed on in pieces is wanted, because it is whole or for another reason. */
  onUploadEnd(): void;
  /** Hears that the headers of the answer have come. */
  onHeaders(): void;
  /** Hears the answer: the whole of it, or its headers and a body that is still to come. */
  answered(answer: UpstreamAnswer): void;
  /** Hears, in place of an answer: upstream_busy, upstream_failed, upstream_timeout, overloaded, body_too_large,
   * client_closed, request_timeout, or the reason of the cancellation. */
  failed(error: GatewayError): void;
}

/**
 * One upstream: a pool of connections, places for requests in flight and a deadline on silence. A request takes its place when
 * its body has arrived, or 64 KiB of a longer one. What writes is sent at
 * most once, ever: of a request whose connection broke nobody knows whether it was carried out. What only reads is sent
 * once more where a connection that was kept has ended without a byte for it.
 */
export class Upstream {
  readonly #to: CallTo;
  readonly #pool: ConnectionPool;
  readonly #places: FairShare;
  /** How many requests were sent a second time. */
  repeated = 0;
  /** How many times it sent bytes that no request had asked for. */
  unsolicited = 0;
  /** How many bodies came too slowly. */
  slowBodies = 0;
  readonly #options: UpstreamOptions;

  constructor(options: UpstreamOptions) {
    const { name, url, timeoutSeconds, maxInFlight, maxBodyBytes, minBodyBytesPerSecond } = options;
    this.#options = options;
    const origin = new URL(url);
    this.#places = new FairShare(maxInFlight);
    this.#pool = new ConnectionPool({
      ...options,
      ...{ origin, connectMilliseconds: timeoutSeconds * 1000, maxConnections: maxInFlight },
      onUnsolicited: () => {
        this.unsolicited += 1;
        options.onUnsolicited();
      },
    });
    this.#to = {
      name,
      timeoutSeconds,
      maxBodyBytes,
      minBodyBytesPerSecond,
      host: origin.host,
      pool: this.#pool,
      onRepeat: () => {
        this.repeated += 1;
      },
      onSlowBody: () => {
        this.slowBodies += 1;
      },
    };
  }

  /** How many requests it has not answered yet. */
  get inFlight(): number {
    return this.#places.taken;
  }

  /** How many idle connections are bound to merchants. */
  get boundIdle(): number {
    return this.#pool.boundIdle;
  }

  /**
   * Sends a request, which hears what comes of it.
   * @throws GatewayError upstream_busy; then it hears nothing
   */
  send(request: UpstreamRequest): void {
    const { body } = request;
    const whole = body === null ? null : request.bodyAtHand();
    if (body === null || whole !== null) {
      this.#start(request, whole, null);
      return;
    }
    bufferBody(request, body, this.#options, (begin, rest) => {
      try {
        this.#start(request, begin, rest);
      } catch (error) {
        request.onUploadEnd();
        request.failed(error as GatewayError);
      }
    });
  }

  /** @throws GatewayError upstream_busy */
  #start(request: UpstreamRequest, begin: Buffer | null, rest: Readable | null): void {
    new UpstreamCall(this.#to, request, this.#places.take(request.merchantId)).start(begin, rest);
  }

  /** Lets what is under way end, for a caller who has left as well, and cuts off what has not by then. */
  async close(timeoutMilliseconds: number): Promise<void> {
    const cutOff = setTimeout(() => {
      this.#pool.destroy();
    }, timeoutMilliseconds);
    await this.#pool.close();
    clearTimeout(cutOff);
  }
}
