import type { IncomingMessage, ServerResponse } from 'node:http';
import type { KeyAnswer } from '../gateway/ports.js';
import type { DenialCode } from '../policy/denials.js';
import type { Credential, RequestFacts } from '../policy/facts.js';
import { connectionFactsOf } from './connection-facts.js';
import type { ConnectionFacts } from './connection-facts.js';
import { gatewayErrors } from './errors.js';
import type { GatewayError, GatewayErrorCode } from './errors.js';
import { splitTarget } from './request-path.js';
import type { RequestTarget } from './request-path.js';
import type { RouteMatch } from './routes.js';

/** How a request ended: accepted and answered by its upstream, or refused or failed for a reason. */
export type Outcome = 'accepted' | DenialCode | GatewayErrorCode;

/** One request and what has become of it so far; the one place from which its log line and its metrics are made. */
export class Exchange {
  /** `x-request-id`. */
  id = '';
  readonly target: RequestTarget;
  readonly connection: ConnectionFacts;
  /** Null while the client address is not known. */
  facts: RequestFacts | null = null;
  credential: Credential | null = null;
  /** Null where the key store was not asked. */
  answer: KeyAnswer | null = null;
  match: RouteMatch | null = null;
  outcome: Outcome = 'accepted';
  /** What operators should know of a failure; no caller sees it. */
  detail: string | null = null;
  /** Whether it went to its upstream. */
  forwarded = false;
  /** Milliseconds from sending the request upstream to the headers of its answer. */
  upstreamDuration: number | null = null;
  readonly #startedAt = performance.now();
  readonly #cancellation = new AbortController();
  readonly #onOver: (() => void)[] = [];
  #decided = false;
  #closed = false;

  constructor(
    readonly request: IncomingMessage,
    readonly response: ServerResponse,
    target: string,
    /** When the headers had arrived, in milliseconds since 1970. */
    readonly receivedAt: number,
  ) {
    this.target = splitTarget(target);
    this.connection = connectionFactsOf(request.socket);
  }

  /** Aborted, with a GatewayError as the reason, when the request is to end before its upstream has answered. */
  get signal(): AbortSignal {
    return this.#cancellation.signal;
  }

  cancel(reason: GatewayError): void {
    this.#cancellation.abort(reason);
  }

  /** Says that it is known whether the request was accepted and whose it was. */
  decided(): void {
    this.#decided = true;
    this.#end();
  }

  /** Says that nothing more can be answered: the answer is out, or the caller is gone. */
  closed(): void {
    if (this.outcome === 'accepted' && !this.response.writableFinished) this.outcome = 'client_closed';
    this.#closed = true;
    this.#end();
  }

  /** Whether the request is both decided and closed; before, its line could not say whose it was or how it ended. */
  get over(): boolean {
    return this.#decided && this.#closed;
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

  #end(): void {
    if (this.over) for (const callback of this.#onOver.splice(0)) callback();
  }
}

declare module 'fastify' {
  interface FastifyRequest {
    exchange: Exchange;
  }
}
