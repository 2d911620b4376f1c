import { Readable } from 'node:stream';
import { accessOf } from '../../policy/permissions.js';
import { errors } from 'undici';
import { GatewayError } from '../request/errors.js';
import { type ResponseListener, ResponseReader, type UpstreamResponse } from '../http1/response-reader.js';
import type { ConnectionPool } from '../http1/connection-pool.js';
import { ClosedBeforeResponse, writeRequestHead } from '../http1/connection.js';
import { returnableHeaders } from '../request/reserved-headers.js';
import { type UploadLimits, UploadMeter } from './upload-meter.js';
import type { UpstreamOptions, UpstreamRequest } from './upstream-request.js';

/** The upstream that a call is sent to. */
export interface CallTo extends Pick<UpstreamOptions, 'name' | 'timeoutSeconds'>, UploadLimits {
  /** Value of the Host header. */
  readonly host: string;
  readonly pool: Pick<ConnectionPool, 'send' | 'isDistrusted'>;
  /** Called when a request is retried. */
  onRepeat(): void;
}

/**
 * One request to an upstream. The call ends when the whole response has arrived, or the headers of a streamed response.
 */
export class UpstreamCall implements ResponseListener {
  readonly #to: CallTo;
  readonly #request: UpstreamRequest;
  readonly #giveBack: () => void;
  readonly #deadline: NodeJS.Timeout;
  #upload: UploadMeter | null = null;
  #hasFailed = false;
  /** Whether the request was retried. */
  #isRepeated = false;

  /** @param giveBack releases the slot at the upstream; called once: at the end of the response, or on failure */
  constructor(to: CallTo, request: UpstreamRequest, giveBack: () => void) {
    this.#to = to;
    this.#request = request;
    this.#giveBack = giveBack;
    this.#deadline = setTimeout(() => {
      this.#timedOut();
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
    this.#upload?.destroy(); // in case no connection carries it yet
    this.#giveBack();
    this.#request.failed(asGatewayError(this.#to.name, error));
  }

  /** Whether the request may be retried. A read without a body is idempotent, so a retry is safe (RFC 9110 9.2.2). */
  #mayBeRepeated(): boolean {
    const { method, body, cancellation } = this.#request;
    return !this.#isRepeated && accessOf(method) === 'read' && body === null && cancellation.reason === null;
  }

  #send(body: Buffer | UploadMeter | null): void {
    const { merchantId, method, target, headers, bodyBytes, cancellation } = this.#request;
    const { host, pool, timeoutSeconds } = this.#to;
    const framing = Buffer.isBuffer(body) ? body.length : body === null ? null : (bodyBytes ?? 'chunked');
    const reader = new ResponseReader(this, cancellation, timeoutSeconds);
    if (body instanceof UploadMeter) {
      body.once('error', (error) => {
        reader.cancel(error);
      });
    }
    try {
      const head = writeRequestHead({
        method,
        target,
        host,
        headers,
        body: framing,
        keepsConnection: !pool.isDistrusted,
      });
      pool.send({ merchantId, method, head, body, framing }, reader, this.#isRepeated);
    } catch (error) {
      this.failed(error);
    }
  }

  #timedOut(): void {
    const { name, timeoutSeconds } = this.#to;
    const code = this.#upload?.waitsForClient === true ? 'request_timeout' : 'upstream_timeout';
    this.#request.cancellation.cancel(new GatewayError(code, `${name}: no data for ${timeoutSeconds} s`));
  }
}

function asGatewayError(name: string, error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const reason = error instanceof Error ? error.message : 'unknown';
  const silent = error instanceof errors.ConnectTimeoutError;
  return new GatewayError(silent ? 'upstream_timeout' : 'upstream_failed', `${name}: ${reason}`, { cause: error });
}
