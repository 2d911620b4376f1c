import type { IncomingMessage, ServerResponse } from 'node:http';
import type { KeyAnswer, Whereabouts } from '../gateway/ports.js';
import type { DenialCode } from '../policy/denials.js';
import type { Credential, RequestFacts } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import { Cancellation } from './cancellation.js';
import { connectionFactsOf } from './connection-facts.js';
import type { ConnectionFacts } from './connection-facts.js';
import { GatewayError, gatewayErrors } from './errors.js';
import type { GatewayErrorCode } from './errors.js';
import type { HeaderList } from './header-list.js';
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
  /** Names and values, flat, as the client sent them. */
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
    this.connection = connectionFactsOf(request.socket);
    this.rawHeaders = request.rawHeaders;
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

  /** Whether the client has left before its response was complete. */
  get callerIsGone(): boolean {
    return this.response.destroyed;
  }

  /** Whether the request has a body, or is to have one. */
  get hasBody(): boolean {
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

  /** The host that was asked for; empty where none was named. */
  get host(): string {
    return this.headers.host[0] ?? '';
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

  /** Whether the whole response went out. */
  get #answered(): boolean {
    return this.response.writableEnded && this.response.writableFinished;
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
