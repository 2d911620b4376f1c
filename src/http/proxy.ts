import type { FastifyInstance, FastifyReply } from 'fastify';
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import type { CallerIdentity } from '../gateway/ports.js';
import type { Credential } from '../policy/facts.js';
import { giveInPieces } from './answer-in-pieces.js';
import type { Cancellation } from './cancellation.js';
import { endReading } from './end-reading.js';
import { GatewayError } from './errors.js';
import type { Exchange } from './exchange.js';
import { hasHeader } from './header-list.js';
import type { HeaderList } from './header-list.js';
import { httpProxy } from './http-proxy.js';
import { limitAnswer } from './limit-answer.js';
import type { AnswerTimeouts } from './limit-answer.js';
import { sendError } from './replies.js';
import { forwardableHeaders } from './reserved-headers.js';
import { proxiedMethods } from './routes.js';
import type { RouteMatch } from './routes.js';
import { addTraceHeaders } from './trace-context.js';
import type { UpstreamAnswer } from './upstream/answer-reader.js';
import type { Upstream, UpstreamRequest } from './upstream/upstream.js';
import { giveWhole } from './whole-answer.js';

/**
 * Registers the proxy for every route. @fastify/http-proxy takes the requests; what goes upstream, and how, is decided
 * here, because the plugin's own transport retries, does not verify TLS, waits for minutes and passes identity headers
 * on. It is done in front of the plugin's own handler, which makes three URLs of each request's path and compares them,
 * and copies the headers of the answer three times.
 * @param identity signs who calls; null: upstreams get no signature
 */
export function registerProxy(
  app: FastifyInstance,
  upstreams: ReadonlyMap<string, Upstream>,
  timeouts: AnswerTimeouts,
  identity: CallerIdentity | null,
): void {
  void app.register(httpProxy, {
    // Only the exchange says where a request goes; the plugin wants an origin all the same.
    upstream: 'http://upstream.invalid',
    prefix: '/',
    httpMethods: [...proxiedMethods],
    preHandler: ({ exchange }, reply) => {
      try {
        forward(exchange, reply, upstreams, timeouts, identity);
      } catch (error) {
        sendError(reply, error);
      }
    },
  });
}

/** @throws GatewayError where the request does not go upstream */
function forward(
  exchange: Exchange,
  reply: FastifyReply,
  upstreams: ReadonlyMap<string, Upstream>,
  timeouts: AnswerTimeouts,
  identity: CallerIdentity | null,
): void {
  const { credential, match } = exchange;
  const upstream = match === null ? undefined : upstreams.get(match.route.upstream);
  if (match === null || upstream === undefined) throw new GatewayError('not_found', 'no upstream has this path');
  if (credential === null) throw new Error('a request without a credential was about to be proxied');

  const request = new ProxiedRequest(reply, match, credential, timeouts);
  if (identity === null) {
    request.send(upstream);
    return;
  }
  identity
    .assertionFor(credential, match.route.upstream)
    .then((assertion) => {
      request.headers.unshift('x-gateway-assertion', assertion);
      request.send(upstream);
    })
    .catch((error: unknown) => {
      sendError(reply, error);
    });
}

/** A request as its upstream gets it. One object, as what it hears would else be a closure each. */
class ProxiedRequest implements UpstreamRequest {
  readonly merchantId: string;
  readonly method: string;
  readonly target: string;
  readonly headers: string[];
  readonly body: IncomingMessage | null;
  readonly bodyBytes: number | null;
  readonly cancellation: Cancellation;
  readonly #exchange: Exchange;
  readonly #reply: FastifyReply;
  readonly #timeouts: AnswerTimeouts;
  #sentAt = 0;

  constructor(reply: FastifyReply, match: RouteMatch, { merchantId }: Credential, timeouts: AnswerTimeouts) {
    const { exchange } = reply.request;
    const { request, target, hasBody } = exchange;
    this.merchantId = merchantId;
    this.method = request.method ?? '';
    this.target = match.upstreamPath + target.query;
    this.headers = forwardableHeaders(exchange.rawHeaders, identityHeaders(exchange));
    this.body = hasBody ? request : null;
    this.bodyBytes = exchange.declaredBytes;
    this.cancellation = exchange.cancellation;
    this.#exchange = exchange;
    this.#reply = reply;
    this.#timeouts = timeouts;
  }

  /** @throws GatewayError upstream_busy */
  send(upstream: Upstream): void {
    const exchange = this.#exchange;
    if (this.body !== null && exchange.expectsContinue) exchange.response.writeContinue();
    this.#sentAt = performance.now();
    upstream.send(this);
  }

  onStart(): void {
    this.#exchange.forwarded = true;
  }

  onBody(bytes: number): void {
    if (this.#exchange.requestBodyBytes === 0) this.#sentAt = performance.now(); // until then it was its client's to send
    this.#exchange.requestBodyBytes += bytes;
  }

  /** A small one mostly comes in one packet with its head, and needs no events then: a seventh of what a POST costs. */
  bodyAtHand(): Buffer | null {
    const { request } = this.#exchange;
    const isHere = request.complete && request.readableLength === this.bodyBytes;
    const body = isHere ? (request.read() as Buffer | null) : null;
    if (body !== null) endReading(request);
    return body;
  }

  bodyIsWhole(): boolean {
    return this.#exchange.request.complete;
  }

  /**
   * Drops what its client still sends of it. Node does that only for a body that was never read from: the rest of another one
   * would stand in front of the connection's next request.
   */
  onUploadEnd(): void {
    this.#exchange.request.resume();
  }

  onHeaders(): void {
    this.#exchange.upstreamDuration = performance.now() - this.#sentAt;
  }

  answered(answer: UpstreamAnswer): void {
    try {
      if (answer.body instanceof Readable) passOnInPieces(this.#reply, answer.body, answer, this.#timeouts);
      else passOnWhole(this.#reply, answer.body, answer);
    } catch (error) {
      this.failed(error);
    }
  }

  failed(error: unknown): void {
    sendError(this.#reply, error);
  }
}

/** Gives the caller an answer that is still to come. */
function passOnInPieces(
  reply: FastifyReply,
  body: Readable,
  { statusCode, headers }: UpstreamAnswer,
  timeouts: AnswerTimeouts,
): void {
  const { exchange } = reply.request;
  body.once('error', (error: Error) => {
    const reason = exchange.cancellation.reason ?? error;
    const code = reason instanceof GatewayError ? reason.code : 'upstream_failed';
    const upstream = exchange.match?.route.upstream ?? '';
    sendError(reply, new GatewayError(code, `${upstream}: the answer broke off: ${error.message}`, { cause: reason }));
  });
  limitAnswer(exchange, timeouts);
  giveInPieces(reply, statusCode, [...ownHeaders(exchange, headers), ...headers], body);
}

/** Gives the caller an answer that has come whole. */
function passOnWhole(reply: FastifyReply, body: string, answer: UpstreamAnswer): void {
  const { exchange } = reply.request;
  exchange.forwardedBodyBytes = body.length;
  const headers = framed(exchange, answer, body.length);
  try {
    giveWhole(reply, answer.statusCode, headers, body);
  } catch (error) {
    throw new GatewayError('upstream_failed', 'it answered with a header that is none', { cause: error });
  }
}

/** The headers of a whole answer, with its length. */
function framed(exchange: Exchange, { statusCode, headers }: UpstreamAnswer, length: number): HeaderList {
  const framed = ownHeaders(exchange, headers);
  // What a HEAD and a 304 say is the length of another answer; a 204 has none (RFC 9110 8.6).
  const keepsLength = statusCode === 304 || exchange.request.method === 'HEAD';
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = headers[index] ?? '';
    if (name !== 'content-length' || (keepsLength && statusCode !== 204)) framed.push(name, headers[index + 1] ?? '');
  }
  if (!keepsLength && statusCode !== 204) framed.push('content-length', String(length));
  return framed;
}

/** What every answer to the request bears, but for what a service says itself, such as its own limits. */
function ownHeaders({ answerHeaders }: Exchange, headers: HeaderList): HeaderList {
  const own: HeaderList = [];
  for (let index = 0; index + 1 < answerHeaders.length; index += 2) {
    const name = String(answerHeaders[index]);
    if (!hasHeader(headers, name)) own.push(name, answerHeaders[index + 1] ?? '');
  }
  return own;
}

/**
 * Who calls, from where and how, as the gateway found it; the upstream has no other word for it. These stand in front of the
 * client's: a service that reads so many headers alone, as Node does of a thousand, drops the last ones, and tells nobody.
 */
function identityHeaders({ id, facts, credential, host, trace }: Exchange): string[] {
  if (facts === null || credential === null) throw new Error('a request without a credential was about to be proxied');
  const headers: string[] = [];
  headers.push('x-merchant-id', credential.merchantId);
  headers.push('x-merchant-key-id', credential.keyId);
  headers.push('x-merchant-environment', credential.environment);
  headers.push('x-request-id', id);
  headers.push('x-forwarded-for', facts.clientAddress.text);
  headers.push('x-forwarded-proto', facts.secure ? 'https' : 'http');
  headers.push('x-forwarded-host', host);
  if (trace !== null) addTraceHeaders(headers, trace);
  return headers;
}
