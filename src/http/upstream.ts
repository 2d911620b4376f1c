import type { Readable } from 'node:stream';
import { errors, Pool } from 'undici';
import type { Cancellation } from './cancellation.js';
import { GatewayError } from './errors.js';
import { FairShare } from './fair-share.js';
import { connectorWithoutInterim } from './interim-responses.js';
import { readSmallBody, smallBodyBytes } from './small-body.js';
import { UploadMeter } from './upload-meter.js';
import { AnswerReader } from './upstream-answer.js';
import type { AnswerTarget, UpstreamAnswer } from './upstream-answer.js';

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
  /** How long the client says that it is; null where it does not say. */
  readonly bodyBytes: number | null;
  /** Told of the size of each piece of the body that is passed on. */
  readonly onBody: (bytes: number) => void;
  /** Whether all of the body has come, asked when it ends: half of one must not pass for a whole one. */
  readonly bodyIsWhole: () => boolean;
  readonly cancellation: Cancellation;
  /** Told when the headers of the answer have come. */
  readonly onHeaders: () => void;
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
      // Our own deadlines are exact; undici's are coarse and count an upload as silence.
      headersTimeout: 0,
      bodyTimeout: 0,
      // Verification is stated, because the default of the proxy plugin is none.
      connect: connectorWithoutInterim({
        timeout,
        rejectUnauthorized: true,
        ...(options.ca === null ? {} : { ca: options.ca }),
      }),
    });
  }

  /**
   * Sends a request and gives back its answer: the whole of it, or its headers and a body that is still to come.
   * @throws GatewayError: upstream_busy, upstream_failed, upstream_timeout, body_too_large, request_timeout, or the
   *   reason of the request's cancellation
   */
  send(request: UpstreamRequest): Promise<UpstreamAnswer> {
    return new Promise((resolve, reject) => {
      const giveBack = this.#places.take(request.merchantId);
      const answered = (answer: UpstreamAnswer): void => {
        if (Buffer.isBuffer(answer.body)) giveBack();
        else answer.body.once('close', giveBack);
        resolve(answer);
      };
      let hasFailed = false;
      const failed = (error: unknown): void => {
        if (hasFailed) return;
        hasFailed = true;
        giveBack();
        reject(asGatewayError(this.#options.name, error));
      };
      this.#dispatch(request, { answered, failed });
    });
  }

  /** Lets what is under way end, for a caller who has left as well, and cuts off what has not by then. */
  async close(timeoutMilliseconds: number): Promise<void> {
    const cutOff = setTimeout(() => void this.#pool.destroy(), timeoutMilliseconds);
    await this.#pool.close().catch(() => undefined);
    clearTimeout(cutOff);
  }

  #dispatch(request: UpstreamRequest, { answered, failed }: Omit<AnswerTarget, 'onHeaders'>): void {
    const { name, timeoutSeconds, maxBodyBytes } = this.#options;
    const { cancellation, method, target: path, headers, body, bodyBytes } = request;
    let upload: UploadMeter | null = null;
    let isReading = false;
    const deadline = setTimeout(() => {
      const code = isReading || upload?.waitsForClient === true ? 'request_timeout' : 'upstream_timeout';
      cancellation.cancel(new GatewayError(code, `${name}: nothing came for ${timeoutSeconds} s`));
    }, timeoutSeconds * 1000);
    const fail = (error: unknown): void => {
      clearTimeout(deadline);
      failed(error);
    };
    const onHeaders = (): void => {
      clearTimeout(deadline);
      request.onHeaders();
    };
    const dispatch = (sent: Buffer | UploadMeter | null): void => {
      const reader = new AnswerReader({ answered, failed: fail, onHeaders }, cancellation, timeoutSeconds);
      this.#pool.dispatch({ method, path, headers, body: sent }, reader);
    };
    if (body === null) {
      dispatch(null);
    } else if (bodyBytes !== null && bodyBytes <= smallBodyBytes) {
      isReading = true;
      readSmallBody(body, request.bodyIsWhole, cancellation)
        .then((whole) => {
          isReading = false;
          request.onBody(whole.length);
          deadline.refresh();
          dispatch(whole);
        })
        .catch(fail);
    } else {
      upload = new UploadMeter(request, body, maxBodyBytes, deadline);
      dispatch(upload);
    }
  }
}

function asGatewayError(name: string, error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const reason = error instanceof Error ? error.message : 'unknown';
  const silent = error instanceof errors.ConnectTimeoutError;
  return new GatewayError(silent ? 'upstream_timeout' : 'upstream_failed', `${name}: ${reason}`, { cause: error });
}
