import type { IncomingMessage, ServerResponse } from 'node:http';
import type { DenialCode } from '../../policy/decision-table.js';
import { GatewayError } from './errors.js';
import { type GatewayErrorCode, gatewayErrors } from '../../policy/gateway-errors.js';
import type { Findings } from './findings.js';
import type { RequestData } from './request-data.js';

/** Result of a request: `accepted`, or the code of the denial or of the failure. */
export type Outcome = 'accepted' | DenialCode | GatewayErrorCode;

/**
 * State of one request: its data, the results of each step and its outcome. Its access log line and metrics are derived
 * from this state.
 */
export class Exchange {
  /** Called before the response is written. */
  beforeResponse: (exchange: Exchange) => void = () => undefined;
  /** Called when a complete response has been passed to the connection. Not called for a streamed response. */
  afterResponse: (exchange: Exchange) => void = () => undefined;
  outcome: Outcome = 'accepted';
  /** Details of a failure for operators; never sent to the client. */
  detail: string | null = null;
  /** Whether an upstream connection has begun to carry the request. */
  forwarded = false;
  /** Milliseconds from sending the request upstream until the response headers arrived; null if none arrived. */
  upstreamDuration: number | null = null;
  /** Bytes of the request body sent to the upstream. */
  requestBodyBytes = 0;
  /** Bytes of the upstream's response body passed to the client connection. */
  forwardedBodyBytes = 0;
  /** Body length in bytes of a response that the gateway generated; null for a response of the upstream. */
  ownBodyBytes: number | null = null;
  /** Milliseconds from the arrival of the headers to the decision; 0 before the decision. */
  decisionDuration = 0;
  readonly #startedAt = performance.now();
  /** When the request was over (decided, and its response finished), on the clock of `#startedAt`; null before. */
  #endedAt: number | null = null;
  /** Used to cancel the request while its body is buffered, or while the upstream response is not complete. */
  readonly cancellation = new Cancellation();
  readonly #onOver: (() => void)[] = [];
  #decided = false;
  #closed = false;

  constructor(
    readonly request: IncomingMessage,
    readonly response: ServerResponse,
    readonly data: RequestData,
    readonly found: Findings,
  ) {}

  /** Marks the request as decided: its outcome and its merchant are now known. */
  decided(): void {
    this.#decided = true;
    this.decisionDuration = this.age;
    this.#end();
  }

  /**
   * Marks the response as finished: it was sent completely, or its connection was closed.
   * @param reasonOf called if the response is incomplete. Returns, for operators, why the gateway closed the
   *   connection; null if the client closed it.
   */
  closed(reasonOf: () => string | null): void {
    if (this.outcome === 'accepted' && !this.#responded) {
      this.outcome = 'client_closed';
      this.detail ??= reasonOf() ?? 'the client disconnected';
      // A disconnect does not cancel a forwarded write, because the write could already have taken effect upstream.
      if (this.found.facts?.access === 'read' || !this.forwarded) {
        this.cancellation.cancel(new GatewayError('client_closed', this.detail));
      }
    }
    this.#closed = true;
    this.#end();
  }

  /** Whether the request is both decided and closed. Until then, its merchant or its outcome can be unknown. */
  get over(): boolean {
    return this.#decided && this.#closed;
  }

  /** Whether the client disconnected before its response was complete. */
  get callerIsGone(): boolean {
    return this.response.destroyed;
  }

  /** Calls the callback once, when the request is both decided and closed. */
  whenOver(callback: () => void): void {
    if (this.#decided && this.#closed) callback();
    else this.#onOver.push(callback);
  }

  /** Milliseconds since the headers arrived, on a monotonic clock. */
  get age(): number {
    return performance.now() - this.#startedAt;
  }

  /** Milliseconds from the arrival of the headers until the request was over, or until now if it is not over yet. */
  get duration(): number {
    return this.#endedAt === null ? this.age : this.#endedAt - this.#startedAt;
  }

  /** The response status; 499 if the outcome is `client_closed`. */
  get status(): number {
    return this.outcome === 'client_closed' ? gatewayErrors.client_closed.status : this.response.statusCode;
  }

  /**
   * Number of bytes of the response body that were sent. A body that the gateway generated counts only if it was sent
   * completely.
   */
  get responseBodyBytes(): number {
    if (this.ownBodyBytes === null) return this.forwardedBodyBytes;
    return this.#responded && this.request.method !== 'HEAD' ? this.ownBodyBytes : 0;
  }

  /** Whether the whole response was sent. */
  get #responded(): boolean {
    return this.response.writableEnded && this.response.writableFinished;
  }

  #end(): void {
    if (!this.#decided || !this.#closed) return;
    this.#endedAt ??= performance.now();
    for (const callback of this.#onOver.splice(0)) callback();
  }
}

declare module 'fastify' {
  interface FastifyRequest {
    exchange: Exchange;
  }
}

/**
 * Cancels a request whose upstream response is not complete, for example after the client disconnected or the upstream
 * timed out. One such object per request is cheaper than an AbortController.
 */
export class Cancellation {
  /** Why the request was cancelled; null if it was not. */
  reason: GatewayError | null = null;
  #listener: ((reason: GatewayError) => void) | null = null;

  cancel(reason: GatewayError): void {
    if (this.reason !== null) return;
    this.reason = reason;
    this.#listener?.(reason);
  }

  /** Sets the only listener, and calls it immediately if the request is already cancelled. */
  listen(listener: (reason: GatewayError) => void): void {
    this.#listener = listener;
    if (this.reason !== null) listener(this.reason);
  }
}
