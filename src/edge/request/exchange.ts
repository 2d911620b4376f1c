import type { IncomingMessage, ServerResponse } from 'node:http';
import type { DenialCode } from '../../policy/decision-table.js';
import { GatewayError, type GatewayErrorCode, gatewayErrors } from './errors.js';
import type { RequestData, HeaderList } from './request-data.js';
import type { KeyLookup, GeoLocation } from '../../gateway/ports.js';
import type { Credential, RequestFacts } from '../../policy/facts.js';
import type { IpAddress } from '../../policy/ip-address.js';
import type { RouteMatch } from './routes.js';
import type { TraceContext } from './trace-context.js';

/** Result of a request: accepted, or the code of the denial or failure. */
export type Outcome = 'accepted' | DenialCode | GatewayErrorCode;

/**
 * State of one request: its data, the findings of each step and its outcome. Source of its access log line and metrics.
 */
export class Exchange {
  /** Called before the response is written. */
  beforeResponse: (exchange: Exchange) => void = () => undefined;
  /** Called when a complete response has been passed to the connection. */
  afterResponse: (exchange: Exchange) => void = () => undefined;
  outcome: Outcome = 'accepted';
  /** Details of a failure for operators; never sent to the client. */
  detail: string | null = null;
  /** Whether the request was sent on an upstream connection. */
  forwarded = false;
  /**
   * Milliseconds from sending the request upstream to the upstream's response headers; null without an upstream
   * response.
   */
  upstreamDuration: number | null = null;
  /** Bytes of the request body sent to the upstream. */
  requestBodyBytes = 0;
  /** Bytes of the upstream's response body passed to the client connection. */
  forwardedBodyBytes = 0;
  /** Body length in bytes of a response that the gateway generated; null for an upstream response. */
  ownBodyBytes: number | null = null;
  /** Milliseconds from the headers' arrival to the decision. */
  decisionDuration = 0;
  readonly #startedAt = performance.now();
  /** Cancels the request while its upstream response is pending. */
  readonly cancellation = new Cancellation();
  readonly #onOver: (() => void)[] = [];
  #decided = false;
  #closed = false;
  #isNotified = false;

  constructor(
    readonly request: IncomingMessage,
    readonly response: ServerResponse,
    readonly data: RequestData,
    readonly found: Findings,
  ) {}

  /** Marks the request as decided: its outcome and its merchant are known. */
  decided(): void {
    this.#decided = true;
    this.decisionDuration = this.duration;
    this.#end();
  }

  /**
   * Marks the connection side as finished: the response is sent, or the client is gone.
   * @param reason for operators, if something other than the client closed the connection
   */
  closed(reason: string | null = null): void {
    if (this.outcome === 'accepted' && !this.#responded) {
      this.outcome = 'client_closed';
      this.detail ??= reason;
      // A disconnect cancels reads only. A write continues, because it may already have taken effect upstream.
      if (this.found.facts?.access === 'read') {
        this.cancellation.cancel(new GatewayError('client_closed', reason ?? 'the client disconnected'));
      }
    }
    this.#closed = true;
    this.#end();
  }

  /** Whether the request is both decided and closed. Until then its merchant or its outcome is unknown. */
  get over(): boolean {
    return this.#decided && this.#closed;
  }

  /** Whether the client disconnected before its response was complete. */
  get callerIsGone(): boolean {
    return this.response.destroyed;
  }

  /** Calls back once, when the request is both decided and closed. */
  whenOver(callback: () => void): void {
    if (this.over) callback();
    else this.#onOver.push(callback);
  }

  /** Milliseconds since the headers arrived, on a monotonic clock. */
  get duration(): number {
    return performance.now() - this.#startedAt;
  }

  /** The response status; 499 if the client disconnected before the response was complete. */
  get status(): number {
    return this.outcome === 'client_closed' ? gatewayErrors.client_closed.status : this.response.statusCode;
  }

  /** Bytes of the response body: bytes passed on from the upstream, or the body that the gateway generated. */
  get responseBodyBytes(): number {
    if (this.ownBodyBytes === null) return this.forwardedBodyBytes;
    return this.#responded && this.request.method !== 'HEAD' ? this.ownBodyBytes : 0;
  }

  /** Whether the whole response went out. */
  get #responded(): boolean {
    return this.response.writableEnded && this.response.writableFinished;
  }

  #end(): void {
    if (!this.over || this.#isNotified) return;
    this.#isNotified = true;
    for (const callback of this.#onOver) callback();
  }
}

declare module 'fastify' {
  interface FastifyRequest {
    exchange: Exchange;
  }
}

/**
 * Results of a request's steps. Each step writes its own fields, and nothing else writes them. The access log uses them
 * even if a later step fails. Fields of steps that did not run are null.
 */
export class Findings {
  /** `x-request-id`; empty before the first step. */
  id = '';
  /** Null if unknown. */
  clientAddress: IpAddress | null = null;
  trace: TraceContext | null = null;
  /** The fingerprint logged in place of the key; null without a key, or if no fingerprint secret is configured. */
  keyFingerprint: string | null = null;
  match: RouteMatch | null = null;
  /** Country and AS number of the client address; null without a GeoIP database. */
  location: GeoLocation | null = null;
  /** Digest of the Tor exit list that contains the client address; null if the address is not listed. */
  torListDigest: string | null = null;
  facts: RequestFacts | null = null;
  /** Duration of the key look-up in milliseconds; null without a look-up. */
  lookupDuration: number | null = null;
  /** The key store's result; null without a look-up. */
  keyLookup: KeyLookup | null = null;
  credential: Credential | null = null;
  /** Look-up id of a key in a request that was refused before the look-up. Such a key is exposed. */
  exposedLookupId: string | null = null;
  /** Headers of every response to this request, whether generated by the gateway or passed on. */
  readonly responseHeaders: HeaderList;

  /** @param ownHeaders headers of every response of the listener */
  constructor(ownHeaders: HeaderList) {
    this.responseHeaders = [...ownHeaders];
  }
}

/** Cancels a request before its upstream has responded. Lighter than one AbortController per request. */
export class Cancellation {
  /** Reason of the cancellation; null while not cancelled. */
  reason: GatewayError | null = null;
  #listener: ((reason: GatewayError) => void) | null = null;

  cancel(reason: GatewayError): void {
    if (this.reason !== null) return;
    this.reason = reason;
    this.#listener?.(reason);
  }

  /** Sets the single listener, and calls it immediately if already cancelled. */
  listen(listener: (reason: GatewayError) => void): void {
    this.#listener = listener;
    if (this.reason !== null) listener(this.reason);
  }
}
