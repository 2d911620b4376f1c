import type { Readable } from 'node:stream';
import type { GatewayError } from '../request/errors.js';
import { bufferBody } from './buffer-body.js';
import { ConnectionPool } from '../http1/connection-pool.js';
import { FairShare } from './fair-share.js';
import { type CallTo, UpstreamCall } from './upstream-call.js';
import type { UpstreamOptions, UpstreamRequest } from './upstream-request.js';

/**
 * One upstream: its connection pool, its permits (slots for requests in flight) and its timeout. A request takes a
 * permit when its body, or 64 KiB of a longer body, has arrived. A write is sent at most once, because the service may
 * have executed it even if the connection broke. A read is retried once if a reused connection ended before the first
 * byte of its response.
 */
export class Upstream {
  readonly #to: CallTo;
  readonly #pool: ConnectionPool;
  readonly #places: FairShare;
  /** Number of retried requests. */
  repeated = 0;
  /** Number of connections closed because the service sent bytes without a pending request. */
  unsolicited = 0;
  /** Number of bodies aborted because the client was too slow. */
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

  /** Number of requests in flight. */
  get inFlight(): number {
    return this.#places.taken;
  }

  /** Number of idle connections that are bound to merchants. */
  get boundIdle(): number {
    return this.#pool.boundIdle;
  }

  /**
   * Sends a request and reports the outcome to its callbacks.
   * @throws GatewayError upstream_busy if no permit is available; no callback is called then
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

  /** @throws GatewayError upstream_busy if no permit is available */
  #start(request: UpstreamRequest, begin: Buffer | null, rest: Readable | null): void {
    new UpstreamCall(this.#to, request, this.#places.take(request.merchantId)).start(begin, rest);
  }

  /** Waits for requests in flight, even if their clients have disconnected. Aborts them after the timeout. */
  async close(timeoutMilliseconds: number): Promise<void> {
    const cutOff = setTimeout(() => {
      this.#pool.destroy();
    }, timeoutMilliseconds);
    await this.#pool.close();
    clearTimeout(cutOff);
  }
}
