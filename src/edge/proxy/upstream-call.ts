import { Readable } from 'node:stream';
import { accessOf } from '../../policy/permissions.js';
import { errors } from 'undici';
import { GatewayError } from '../request/errors.js';
import type { AnswerTarget, UpstreamAnswer } from '../http1/answer-parser.js';
import { AnswerReader } from '../http1/answer-reader.js';
import type { ConnectionPool } from '../http1/connection-pool.js';
import { CrossedWithEnd } from '../http1/connection.js';
import { writeRequestHead } from '../http1/request-head.js';
import { returnableHeaders } from '../request/reserved-headers.js';
import { type UploadLimits, UploadMeter } from './upload-meter.js';
import type { UpstreamOptions, UpstreamRequest } from './upstream-request.js';

/** Where a request goes. */
export interface CallTo extends Pick<UpstreamOptions, 'name' | 'timeoutSeconds'>, UploadLimits {
  /** What the upstream is called in the request. */
  readonly host: string;
  readonly pool: Pick<ConnectionPool, 'send' | 'isDistrusted'>;
  /** Hears that a request is sent once more. */
  onRepeat(): void;
}

/** One request on its way to its upstream, until all of its answer, or its headers, have come. */
export class UpstreamCall implements AnswerTarget {
  readonly #to: CallTo;
  readonly #request: UpstreamRequest;
  readonly #giveBack: () => void;
  readonly #deadline: NodeJS.Timeout;
  #upload: UploadMeter | null = null;
  #hasFailed = false;
  /** Whether it was sent a second time. */
  #isRepeated = false;

  /** @param giveBack called once: when the whole answer is here, when its body is closed, or for a failure */
  constructor(to: CallTo, request: UpstreamRequest, giveBack: () => void) {
    this.#to = to;
    this.#request = request;
    this.#giveBack = giveBack;
    this.#deadline = setTimeout(() => {
      this.#timedOut();
    }, to.timeoutSeconds * 1000);
  }

  /**
   * Sends it.
   * @param begin what has come of its body; null where it has none
   * @param rest what is still to come behind that; null where nothing is
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

  answered(answer: UpstreamAnswer): void {
    if (answer.body instanceof Readable) answer.body.once('close', this.#giveBack);
    else this.#giveBack();
    this.#request.answered({ ...answer, headers: returnableHeaders(answer.headers) });
  }

  failed(error: unknown): void {
    if (error instanceof CrossedWithEnd && this.#mayBeRepeated()) {
      this.#isRepeated = true;
      this.#to.onRepeat();
      this.#send(null);
      return;
    }
    clearTimeout(this.#deadline);
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    this.#upload?.destroy(); // no connection may have it yet
    this.#giveBack();
    this.#request.failed(asGatewayError(this.#to.name, error));
  }

  /** What only reads, and has nothing to send but its head, does no harm when it is carried out twice (RFC 9110 9.2.2). */
  #mayBeRepeated(): boolean {
    const { method, body, cancellation } = this.#request;
    return !this.#isRepeated && accessOf(method) === 'read' && body === null && cancellation.reason === null;
  }

  #send(body: Buffer | UploadMeter | null): void {
    const { merchantId, method, target, headers, bodyBytes, cancellation } = this.#request;
    const { host, pool, timeoutSeconds } = this.#to;
    const framing = Buffer.isBuffer(body) ? body.length : body === null ? null : (bodyBytes ?? 'chunked');
    const reader = new AnswerReader(this, cancellation, timeoutSeconds);
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
    this.#request.cancellation.cancel(new GatewayError(code, `${name}: nothing came for ${timeoutSeconds} s`));
  }
}

function asGatewayError(name: string, error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const reason = error instanceof Error ? error.message : 'unknown';
  const silent = error instanceof errors.ConnectTimeoutError;
  return new GatewayError(silent ? 'upstream_timeout' : 'upstream_failed', `${name}: ${reason}`, { cause: error });
}
