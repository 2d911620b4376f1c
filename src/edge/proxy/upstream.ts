import { Readable } from 'node:stream';
import { errors } from 'undici';
import { accessOf } from '../../policy/permissions.js';
import { ClosedBeforeResponse, writeRequestHead } from '../http1/connection.js';
import { ConnectionPool } from '../http1/connection-pool.js';
import { type ResponseListener, ResponseReader, type UpstreamResponse } from '../http1/response-reader.js';
import { GatewayError } from '../request/errors.js';
import { returnableHeaders } from '../request/reserved-headers.js';
import { bufferBody } from './buffer-body.js';
import { FairShare } from './fair-share.js';
import { type UploadLimits, UploadMeter } from './upload-meter.js';
import type { UpstreamOptions, UpstreamRequest } from './upstream-request.js';

/**
 * One upstream: its connection pool, its permits (slots for requests in flight) and its timeout. A request takes a
 * permit once its whole body, or more than 64 KiB of it, has arrived. A write (any method other than GET and HEAD) is
 * sent at most once, because the service could have executed it even if the connection broke. A read without a body is
 * retried once if a reused connection ended before the first byte of its response.
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

  /** Number of idle connections that are bound to (reserved for) one merchant each. */
  get boundIdle(): number {
    return this.#pool.boundIdle;
  }

  /**
   * Sends a request and reports its response or failure to its callbacks.
   * @throws GatewayError upstream_busy, without calling a callback, if no permit (slot at the upstream) is available.
   *   If the body must be buffered first, nothing is thrown, and the callback `failed` reports upstream_busy.
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

  /** @throws GatewayError upstream_busy if no permit (slot at the upstream) is available */
  #start(request: UpstreamRequest, begin: Buffer | null, rest: Readable | null): void {
    new UpstreamCall(this.#to, request, this.#places.take(request.merchantId)).start(begin, rest);
  }

  /**
   * Closes the connections when all requests in flight have ended, including those whose clients have disconnected.
   * Aborts the remaining requests after the timeout.
   */
  async close(timeoutMilliseconds: number): Promise<void> {
    const cutOff = setTimeout(() => {
      this.#pool.destroy();
    }, timeoutMilliseconds);
    await this.#pool.close();
    clearTimeout(cutOff);
  }
}

/** The upstream that a call is sent to. */
interface CallTo extends Pick<UpstreamOptions, 'name' | 'timeoutSeconds'>, UploadLimits {
  /** Value of the Host header. */
  readonly host: string;
  readonly pool: Pick<ConnectionPool, 'send' | 'isDistrusted'>;
  /** Called when a request is retried. */
  onRepeat(): void;
}

/**
 * One request to an upstream, from taking a permit to the response or failure. The timeout is the maximum wait for the
 * response headers; each forwarded part of a streamed request body restarts it. The permit is released when the
 * response body ends, or on failure.
 */
class UpstreamCall implements ResponseListener {
  readonly #to: CallTo;
  readonly #request: UpstreamRequest;
  readonly #giveBack: () => void;
  readonly #deadline: NodeJS.Timeout;
  #upload: UploadMeter | null = null;
  #reader: ResponseReader | null = null;
  #hasFailed = false;
  /** Whether the request was retried. */
  #isRepeated = false;

  /**
   * @param giveBack releases the permit (slot at the upstream); called once: at the end of the response, or on failure
   */
  constructor(to: CallTo, request: UpstreamRequest, giveBack: () => void) {
    this.#to = to;
    this.#request = request;
    this.#giveBack = giveBack;
    this.#deadline = setTimeout(() => {
      this.#endIfStillSilent();
    }, to.timeoutSeconds * 1000);
  }

  /**
   * Sends the request.
   * @param begin the part of the body that has arrived; null without a body
   * @param rest the stream of the remaining body; null if `begin` is complete
   */
  start(begin: Buffer | null, rest: Readable | null): void {
    if (begin === null) this.#send(null);
    else if (rest === null) {
      this.#request.onBody(begin.length);
      this.#send(begin);
    } else {
      this.#upload = new UploadMeter(this.#request, begin, rest, this.#to, this.#deadline);
      this.#send(this.#upload);
    }
  }

  onStart(): void {
    this.#request.onStart();
  }

  onHeaders(): void {
    clearTimeout(this.#deadline);
    this.#request.onHeaders();
  }

  onResponse(response: UpstreamResponse): void {
    if (response.body instanceof Readable) response.body.once('close', this.#giveBack);
    else this.#giveBack();
    this.#request.onResponse({ ...response, headers: returnableHeaders(response.headers) });
  }

  failed(error: unknown): void {
    if (error instanceof ClosedBeforeResponse && this.#mayBeRepeated()) {
      this.#isRepeated = true;
      this.#to.onRepeat();
      this.#send(null);
      return;
    }
    clearTimeout(this.#deadline);
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    this.#upload?.destroy(); // while no connection carries the body, nothing else destroys it
    this.#giveBack();
    this.#request.failed(asGatewayError(this.#to.name, error));
  }

  /** Whether the request can be retried. A read without a body is idempotent, so a retry is safe (RFC 9110 9.2.2). */
  #mayBeRepeated(): boolean {
    const { method, body, cancellation } = this.#request;
    return !this.#isRepeated && accessOf(method) === 'read' && body === null && cancellation.reason === null;
  }

  #send(body: Buffer | UploadMeter | null): void {
    const { merchantId, method, target, headers, bodyBytes, cancellation } = this.#request;
    const { host, pool, timeoutSeconds } = this.#to;
    const framing = Buffer.isBuffer(body) ? body.length : body === null ? null : (bodyBytes ?? 'chunked');
    const reader = new ResponseReader(this, cancellation, timeoutSeconds);
    this.#reader = reader;
    if (body instanceof UploadMeter) {
      body.once('error', (error) => {
        reader.cancel(error);
      });
    }
    try {
      const keepsConnection = !pool.isDistrusted;
      const head = writeRequestHead({ method, target, host, headers, body: framing, keepsConnection });
      pool.send({ merchantId, method, head, body, framing }, reader, this.#isRepeated);
    } catch (error) {
      this.failed(error);
    }
  }

  /**
   * Cancels the request if nothing arrives in this event loop turn either. After a stall of the process, Node runs due
   * timers before it reads the bytes that arrived meanwhile. An immediate 504 could replace the response to a payout.
   */
  #endIfStillSilent(): void {
    const bytes = this.#upload?.bytes;
    setImmediate(() => {
      if (this.#reader?.isSettled === true || this.#upload?.bytes !== bytes) return;
      const { name, timeoutSeconds } = this.#to;
      const code = this.#upload?.waitsForClient === true ? 'request_timeout' : 'upstream_timeout';
      this.#request.cancellation.cancel(
        new GatewayError(code, `${name}: no data sent or received for ${timeoutSeconds} s`),
      );
    });
  }
}

function asGatewayError(name: string, error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const reason = error instanceof Error ? error.message : 'unknown';
  const silent = error instanceof errors.ConnectTimeoutError;
  return new GatewayError(silent ? 'upstream_timeout' : 'upstream_failed', `${name}: ${reason}`, { cause: error });
}
