import type { IncomingMessage, ServerResponse } from 'node:http';
import type { KeyAnswer, Whereabouts } from '../gateway/ports.js';
import type { DenialCode } from '../policy/denials.js';
import type { Credential, RequestFacts } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import { Cancellation } from './cancellation.js';
import { connectionFactsOfRequest } from './connection-facts.js';
import type { ConnectionFacts } from './connection-facts.js';
import { GatewayError, gatewayErrors } from './errors.js';
import type { GatewayErrorCode } from './errors.js';
import type { HeaderList } from './header-list.js';
import { http1FieldsOf } from './http2/http1-fields.js';
import { http2RequestOf, http2ResponseOf } from './http2/http2-message.js';
import { readDecisiveHeaders } from './request-headers.js';
import type { DecisiveHeaders } from './request-headers.js';
import { splitTarget } from './request-path.js';
import type { RequestTarget } from './request-path.js';
import type { RouteMatch } from './routes.js';
import type { TraceContext } from './trace-context.js';

/** How a request ended: accepted and answered by its upstream, or refused or failed for a reason. */
export type Outcome = 'accepted' | DenialCode | GatewayErrorCode;

/** One request and what has become of it so far; the one place from which its log line and its metrics are made. */
export class Exchange {
  /** `x-request-id`. */
  id = '';
  readonly target: RequestTarget;
  readonly connection: ConnectionFacts;
  /** Names and values, flat, in their order, as HTTP/1.1 has them, whatever the request came by. */
  readonly rawHeaders: readonly string[];
  /** Those that the gateway reads. Node's own `headers` would be built anew for each request, and is asked for nothing. */
  readonly headers: DecisiveHeaders;
  /** Null where it is not known. */
  clientAddress: IpAddress | null = null;
  /** Null while they are not known. */
  facts: RequestFacts | null = null;
  /** The list of Tor exits that has the client address; null where none does. */
  torListDigest: string | null = null;
  /** Where the client address is; null where no database was asked. */
  whereabouts: Whereabouts | null = null;
  credential: Credential | null = null;
  /** Null while nobody has looked for one. */
  trace: TraceContext | null = null;
  /** What the log says in place of the key; null where there was none, or where the log has no secret. */
  keyFingerprint: string | null = null;
  /** The look-up id of a key that came with a request which was refused before its key was looked up. */
  exposedLookupId: string | null = null;
  /** Null where the key store was not asked. */
  answer: KeyAnswer | null = null;
  match: RouteMatch | null = null;
  /** Called before its answer is written. */
  beforeAnswer: (exchange: Exchange) => void = () => undefined;
  /** Called when all of an answer that is given whole is with the connection. */
  afterAnswer: (exchange: Exchange) => void = () => undefined;
  /** What every answer to this request bears, whoever gives it. */
  readonly answerHeaders: HeaderList = [];
  outcome: Outcome = 'accepted';
  /** What operators should know of a failure; no caller sees it. */
  detail: string | null = null;
  /** Whether a connection to its upstream carried it. */
  forwarded = false;
  /** Milliseconds from sending the request upstream to the headers of its answer. */
  upstreamDuration: number | null = null;
  /** Bytes of the request's body that went to its upstream. */
  requestBodyBytes = 0;
  /** Bytes of an upstream's answer's body that were given to the connection. */
  forwardedBodyBytes = 0;
  /** Bytes of the body that the gateway answers itself; null where it does not. */
  ownBodyBytes: number | null = null;
  /** Milliseconds of the look-up of its key; null where there was none. */
  lookupDuration: number | null = null;
  /** Milliseconds until it was decided. */
  decisionDuration = 0;
  readonly #startedAt = performance.now();
  /** Ends the request before its upstream has answered. */
  readonly cancellation = new Cancellation();
  readonly #onOver: (() => void)[] = [];
  #decided = false;
  #closed = false;
  #isToldOf = false;

  constructor(
    readonly request: IncomingMessage,
    readonly response: ServerResponse,
    target: string,
    /** When the headers had arrived, in milliseconds since 1970. */
    readonly receivedAt: number,
  ) {
    this.target = splitTarget(target);
    this.connection = connectionFactsOfRequest(request);
    const { rawHeaders } = request;
    this.rawHeaders = http2RequestOf(request) === null ? rawHeaders : http1FieldsOf(rawHeaders);
    this.headers = readDecisiveHeaders(this.rawHeaders);
  }

  /** Says that it is known whether the request was accepted and whose it was. */
  decided(): void {
    this.#decided = true;
    this.decisionDuration = this.duration;
    this.#end();
  }

  /**
   * Says that nothing more can be answered: the answer is out, or the caller is gone.
   * @param reason why, in words for operators, where that was not the caller's doing
   */
  closed(reason: string | null = null): void {
    if (this.outcome === 'accepted' && !this.#answered) {
      this.outcome = 'client_closed';
      this.detail ??= reason;
      // What changes nothing is not carried on for a caller who has hung up; what may have changed something is.
      if (this.facts?.access === 'read') {
        this.cancellation.cancel(new GatewayError('client_closed', reason ?? 'the client went away'));
      }
    }
    this.#closed = true;
    this.#end();
  }

  /** Whether the request is both decided and closed; before, its line could not say whose it was or how it ended. */
  get over(): boolean {
    return this.#decided && this.#closed;
  }

  /** Whether nobody waits for the answer any more. HTTP/2's response does not say so itself; its stream does. */
  get callerIsGone(): boolean {
    return http2ResponseOf(this.response)?.stream.destroyed ?? this.response.destroyed;
  }

  /** Whether the request has a body, or is to have one. */
  get hasBody(): boolean {
    const { request } = this;
    const http2 = http2RequestOf(request);
    if (http2 !== null) return !http2.stream.endAfterHeaders;
    return this.headers.transferEncoding.length > 0 || (this.declaredBytes ?? 0) > 0;
  }

  /** How long the body is, as the client says; null where it does not say. */
  get declaredBytes(): number | null {
    const [length] = this.headers.contentLength;
    return length === undefined ? null : Number(length);
  }

  /** Whether the client waits to be told that its body is wanted. */
  get expectsContinue(): boolean {
    const { expect } = this.headers;
    return expect.length > 0 && expect.join().toLowerCase() === '100-continue' && this.request.httpVersion !== '1.0';
  }

  /**
   * Whether all of the body has come, once its stream has ended. Node ends the body of an HTTP/2 stream that was reset
   * as if it had; a stream that is closed before its answer was cut short.
   */
  get bodyIsWhole(): boolean {
    const http2 = http2RequestOf(this.request);
    return http2 === null ? this.request.complete : !http2.stream.closed;
  }

  /** The host that was asked for; empty where none was named. */
  get host(): string {
    return http2RequestOf(this.request)?.authority ?? this.headers.host[0] ?? '';
  }

  /** Calls back once when the request is over. */
  whenOver(callback: () => void): void {
    if (this.over) callback();
    else this.#onOver.push(callback);
  }

  /** Milliseconds since the headers had arrived, by a clock that nobody sets. */
  get duration(): number {
    return performance.now() - this.#startedAt;
  }

  /** The status that was answered; 499 where nobody was there any more to be answered. */
  get status(): number {
    return this.outcome === 'client_closed' ? gatewayErrors.client_closed.status : this.response.statusCode;
  }

  /** Bytes of the answer's body: those of an upstream's answer that were passed on, or those of the gateway's own. */
  get responseBodyBytes(): number {
    if (this.ownBodyBytes === null) return this.forwardedBodyBytes;
    return this.#answered && this.request.method !== 'HEAD' ? this.ownBodyBytes : 0;
  }

  /**
   * Whether the whole answer went out. Node ends a stream of HTTP/2 that was reset as if it had; but what of its end was handed
   * over behind all of its body is out, and who has it may reset what is left of the request (RFC 9113 8.1).
   */
  get #answered(): boolean {
    const { response } = this;
    const stream = http2ResponseOf(response)?.stream;
    const cutShort = stream !== undefined && stream.rstCode !== 0 && stream.sentTrailers === undefined;
    return response.writableEnded && response.writableFinished && !cutShort;
  }

  #end(): void {
    if (!this.over || this.#isToldOf) return;
    this.#isToldOf = true;
    for (const callback of this.#onOver) callback();
  }
}

declare module 'fastify' {
  interface FastifyRequest {
    exchange: Exchange;
  }
}
