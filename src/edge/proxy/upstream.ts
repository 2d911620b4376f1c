import type { Readable } from 'node:stream';
import type { GatewayError } from '../request/errors.js';
import { bufferBody } from './buffer-body.js';
import { ConnectionPool } from '../http1/connection-pool.js';
import { FairShare } from './fair-share.js';
import { type CallTo, UpstreamCall } from './upstream-call.js';
import type { UpstreamOptions, UpstreamRequest } from './upstream-request.js';

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
