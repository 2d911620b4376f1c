import type { IncomingMessage, ServerResponse } from 'node:http';
import type { DenialCode } from '../../policy/decision-table.js';
import { GatewayError, type GatewayErrorCode, gatewayErrors } from './errors.js';
import type { RequestData, HeaderList } from './request-data.js';
import type { KeyAnswer, Whereabouts } from '../../gateway/ports.js';
import type { Credential, RequestFacts } from '../../policy/facts.js';
import type { IpAddress } from '../../policy/ip-address.js';
import type { RouteMatch } from './routes.js';
import type { TraceContext } from './trace-context.js';

/** How a request ended: accepted and answered by its upstream, or refused or failed for a reason. */
export type Outcome = 'accepted' | DenialCode | GatewayErrorCode;

/** A request on its way: what came, what was found out, and what has become of it; its log line and its metrics are made of this. */
export class Exchange {
  /** Called before its answer is written. */
  beforeAnswer: (exchange: Exchange) => void = () => undefined;
  /** Called when all of an answer that is given whole is with the connection. */
  afterAnswer: (exchange: Exchange) => void = () => undefined;
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
    readonly data: RequestData,
    readonly found: Findings,
  ) {}

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
      if (this.found.facts?.access === 'read') {
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

/**
 * What the steps of a request have found out, each in its turn; only they write it. The log line is made of it also where a
 * later step fails, and what no step has come to is null.
 */
export class Findings {
  /** `x-request-id`; empty where no step was taken. */
  id = '';
  /** Null where it is not known. */
  clientAddress: IpAddress | null = null;
  trace: TraceContext | null = null;
  /** What the log says in place of the key; null where there was none, or where the log has no secret. */
  keyFingerprint: string | null = null;
  match: RouteMatch | null = null;
  /** Where the client address is; null where no database was asked. */
  whereabouts: Whereabouts | null = null;
  /** The list of Tor exits that has the client address; null where none does. */
  torListDigest: string | null = null;
  facts: RequestFacts | null = null;
  /** Milliseconds of the look-up of its key; null where there was none. */
  lookupDuration: number | null = null;
  /** Null where the key store was not asked. */
  answer: KeyAnswer | null = null;
  credential: Credential | null = null;
  /** The look-up id of a key that came with a request which was refused before its key was looked up. */
  exposedLookupId: string | null = null;
  /** What every response to this request bears, whoever makes it. */
  readonly responseHeaders: HeaderList;

  /** @param ownHeaders what every response of the gateway has */
  constructor(ownHeaders: HeaderList) {
    this.responseHeaders = [...ownHeaders];
  }
}

/** Ends a request before its upstream has answered; lighter than an AbortController, of which each request would need one. */
export class Cancellation {
  /** Why; null while nobody has cancelled. */
  reason: GatewayError | null = null;
  #listener: ((reason: GatewayError) => void) | null = null;

  cancel(reason: GatewayError): void {
    if (this.reason !== null) return;
    this.reason = reason;
    this.#listener?.(reason);
  }

  /** Sets who is told, at once where it is cancelled already. There is one at a time. */
  listen(listener: (reason: GatewayError) => void): void {
    this.#listener = listener;
    if (this.reason !== null) listener(this.reason);
  }
}
