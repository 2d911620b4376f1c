import { Readable, Transform } from 'node:stream';
import { errors, Pool } from 'undici';
import { GatewayError } from './errors.js';
import { FairShare } from './fair-share.js';
import { connectorWithoutInterim } from './interim-responses.js';
import { returnableHeaders } from './reserved-headers.js';

/** How an upstream is reached, and what it may cost. */
export interface UpstreamOptions {
  readonly name: string;
  /** Origin: `http://host:port` or `https://host:port`. */
  readonly url: string;
  /** How long it may be silent, with a request and with the rest of an answer. */
  readonly timeoutSeconds: number;
  readonly maxInFlight: number;
  /** PEM of the authority that signed its certificate; null: those that Node trusts. */
  readonly ca: Buffer | null;
  readonly maxBodyBytes: number;
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
  /** Told of the size of each piece of the body that is passed on. */
  readonly onBody: (bytes: number) => void;
  /** Whether all of the body has come, asked when it ends: half of one must not pass for a whole one. */
  readonly bodyIsWhole: () => boolean;
  /** Aborted by `cancel`; its reason is the GatewayError that ends the request. */
  readonly signal: AbortSignal;
  readonly cancel: (reason: GatewayError) => void;
}

/** An upstream's answer, its hop-by-hop headers left out. */
export interface UpstreamResponse {
  readonly statusCode: number;
  readonly headers: Record<string, string | string[]>;
  readonly body: Readable;
}

/**
 * One upstream: a pool of connections, places for requests in flight and a deadline on silence. A request is sent at
 * most once, ever: of one whose connection broke nobody knows whether it was carried out.
 */
export class Upstream {
  readonly #options: UpstreamOptions;
  readonly #pool: Pool;
  readonly #places: FairShare;

  constructor(options: UpstreamOptions) {
    this.#options = options;
    this.#places = new FairShare(options.maxInFlight);
    const timeout = options.timeoutSeconds * 1000;
    this.#pool = new Pool(options.url, {
      connections: options.maxInFlight,
      pipelining: 1,
      headersTimeout: 0, // our own deadline is exact; undici's is coarse and counts an upload as silence
      bodyTimeout: timeout,
      // Verification is stated, because the default of the proxy plugin is none.
      connect: connectorWithoutInterim({
        timeout,
        rejectUnauthorized: true,
        ...(options.ca === null ? {} : { ca: options.ca }),
      }),
    });
  }

  /**
   * Sends a request and resolves with the answer's headers and its unread body.
   * @throws GatewayError: upstream_busy, upstream_failed, upstream_timeout, body_too_large, request_timeout, or the
   *   reason of the request's signal
   */
  async send(request: UpstreamRequest): Promise<UpstreamResponse> {
    const giveBack = this.#places.take(request.merchantId);
    try {
      const answer = await this.#dispatch(request);
      answer.body.once('close', giveBack);
      return answer;
    } catch (error) {
      giveBack();
      throw asGatewayError(this.#options.name, error);
    }
  }

  /** Lets what is under way end, for a caller who has left as well, and cuts off what has not by then. */
  async close(timeoutMilliseconds: number): Promise<void> {
    const cutOff = setTimeout(() => void this.#pool.destroy(), timeoutMilliseconds);
    await this.#pool.close().catch(() => undefined);
    clearTimeout(cutOff);
  }

  async #dispatch(request: UpstreamRequest): Promise<UpstreamResponse> {
    const { name, timeoutSeconds } = this.#options;
    const deadline = setTimeout(() => {
      const waitsForClient = upload !== null && !upload.writableEnded && upload.readableLength === 0;
      const code = waitsForClient ? 'request_timeout' : 'upstream_timeout';
      request.cancel(new GatewayError(code, `${name}: nothing came for ${timeoutSeconds} s`));
    }, timeoutSeconds * 1000);
    const upload =
      request.body === null ? null : meterBody(request, request.body, this.#options.maxBodyBytes, deadline);
    try {
      const { statusCode, headers, body } = await this.#pool.request({
        method: request.method,
        path: request.target,
        headers: request.headers,
        body: upload,
        signal: request.signal,
      });
      if (statusCode < 200 || statusCode > 599) {
        body.on('error', () => undefined).destroy();
        throw new GatewayError('upstream_failed', `${name} answered with the status ${statusCode}`);
      }
      const answered = returnableHeaders(headers);
      // RFC 9110 8.6: the length in a 304 is that of another answer. undici would wait for so many bytes.
      if (statusCode !== 304) return { statusCode, headers: answered, body };
      body.on('error', () => undefined).destroy();
      return { statusCode, headers: answered, body: Readable.from([]) };
    } finally {
      clearTimeout(deadline);
    }
  }
}

/** Passes a body on, chunk by chunk, and ends it where it grows past the limit or its client goes away. */
function meterBody(request: UpstreamRequest, body: Readable, maxBytes: number, deadline: NodeJS.Timeout): Transform {
  const { onBody, bodyIsWhole: isWhole } = request;
  let bytes = 0;
  const meter = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      deadline.refresh();
      onBody(chunk.length);
      if (bytes > maxBytes) done(new GatewayError('body_too_large', `the body is longer than ${maxBytes} bytes`));
      else done(null, chunk);
    },
    flush(done) {
      done(isWhole() ? null : new GatewayError('client_closed', 'the client cut the body short'));
    },
  });
  // Not `pipeline`: that would destroy the client's socket together with the body, and the answer could not be given.
  const end = (): void => {
    if (!meter.writableEnded) meter.destroy(new GatewayError('client_closed', 'the client went away'));
  };
  body.once('error', end).once('close', end);
  meter.once('close', () => body.off('error', end).off('close', end).unpipe(meter));
  return body.pipe(meter);
}

function asGatewayError(name: string, error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const reason = error instanceof Error ? error.message : 'unknown';
  const code = error instanceof errors.ConnectTimeoutError ? 'upstream_timeout' : 'upstream_failed';
  return new GatewayError(code, `${name}: ${reason}`, { cause: error });
}
