import { Readable } from 'node:stream';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import httpProxy from '@fastify/http-proxy';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Dispatcher } from 'undici';
import type { CallerIdentity } from '../../gateway/ports.js';
import { giveInPieces, giveWhole } from '../response/whole-answer.js';
import type { Cancellation, Findings, Exchange } from '../request/exchange.js';
import { GatewayError } from '../request/errors.js';
import { hasHeader, type HeaderList } from '../request/request-data.js';
import { type AnswerTimeouts, limitAnswer } from '../response/limit-answer.js';
import { sendError } from '../response/replies.js';
import { forwardableHeaders } from '../request/reserved-headers.js';
import { proxiedMethods } from '../request/routes.js';
import { addTraceHeaders } from '../request/trace-context.js';
import type { UpstreamAnswer } from '../http1/answer-parser.js';
import { SilentAnswer } from '../http1/answer-reader.js';
import type { UpstreamRequest } from './upstream-request.js';
import type { Upstream } from './upstream.js';

/** What the proxy needs besides the requests. */
export interface ProxyOptions {
  readonly upstreams: ReadonlyMap<string, Upstream>;
  readonly timeouts: AnswerTimeouts;
  /** Signs who calls; null: upstreams get no signature. */
  readonly identity: CallerIdentity | null;
}

/** Among the headers that the plugin gives to its client: the request as it goes upstream. */
const forwarded = Symbol('forwarded request');

/** How the plugin asks its client for a response. */
interface Asked {
  readonly headers: { readonly [forwarded]: ForwardedRequest };
}

/**
 * Registers @fastify/http-proxy for every route, with the gateway's HTTP/1.1 client. The plugin's own client would send a
 * request again whose response was lost, and what the plugin would make of a path (`new URL`) and of headers (one value for
 * each name) is not what its caller sent. So it carries one object for both: the request as it goes upstream.
 */
export function registerProxy(app: FastifyInstance, options: ProxyOptions): void {
  const client = {
    request({ headers }: Asked, callback: Callback): void {
      headers[forwarded].send(callback);
    },
  };
  void app.register(httpProxy, {
    // Each route has its own upstream, which the plugin need not know: the request has it.
    upstream: 'http://upstream.invalid',
    prefix: '/',
    httpMethods: [...proxiedMethods],
    undici: client as unknown as { request: Dispatcher['request'] },
    retryMethods: [],
    disableRequestLogging: true,
    // The plugin's own handler returns the reply, which Fastify would wait for as for a promise.
    handler: (_request, reply, target, replyOptions) => {
      reply.from(target, replyOptions);
    },
    replyOptions: {
      rewriteRequestHeaders: ({ exchange }) =>
        ({ [forwarded]: new ForwardedRequest(exchange, options) }) as IncomingHttpHeaders,
      onResponse: (_request, reply, response) => {
        respond(reply as FastifyReply, (response as unknown as { stream: ForwardedResponse }).stream, options.timeouts);
      },
      onError: (reply, { error }) => {
        sendError(reply as FastifyReply, error.cause ?? error);
      },
    },
  });
}

/** Calls the plugin back: with why there is no response, or with the response. */
type Callback = (
  error: Error | null,
  response?: { readonly statusCode: number; readonly headers: object; readonly body: ForwardedResponse },
) => void;

/** A response on its way through the plugin, which destroys it where the caller has left meanwhile. */
class ForwardedResponse {
  constructor(readonly answer: UpstreamAnswer) {}

  destroy(): void {
    const { body } = this.answer;
    if (body instanceof Readable) body.destroy();
  }
}

/** A request as its upstream gets it. One object, as what it hears would else be a closure each. */
class ForwardedRequest implements UpstreamRequest {
  readonly merchantId: string;
  readonly method: string;
  readonly target: string;
  readonly headers: string[];
  readonly body: IncomingMessage | null;
  readonly bodyBytes: number | null;
  readonly cancellation: Cancellation;
  readonly #exchange: Exchange;
  readonly #upstream: Upstream;
  readonly #assertionFor: (() => Promise<string>) | null;
  #callback: Callback = () => undefined;
  #sentAt = 0;

  /** @throws GatewayError not_found */
  constructor(exchange: Exchange, { upstreams, identity }: ProxyOptions) {
    const { request, data, found } = exchange;
    const { credential, match } = found;
    const upstream = match === null ? undefined : upstreams.get(match.route.upstream);
    if (match === null || upstream === undefined) throw new GatewayError('not_found', 'no upstream has this path');
    if (credential === null) throw new Error('a request without a credential was about to be proxied');
    this.merchantId = credential.merchantId;
    this.method = data.method;
    this.target = match.upstreamPath + data.target.query;
    this.headers = forwardableHeaders(data.rawHeaders, identityHeaders(found, data.host));
    this.body = data.hasBody ? request : null;
    this.bodyBytes = data.declaredBytes;
    this.cancellation = exchange.cancellation;
    this.#exchange = exchange;
    this.#upstream = upstream;
    this.#assertionFor = identity && (() => identity.assertionFor(credential, match.route.upstream));
  }

  /** Sends it, signed where that is wanted. The callback is called once. */
  send(callback: Callback): void {
    this.#callback = callback;
    if (this.#assertionFor === null) this.#send();
    else {
      this.#assertionFor()
        .then((assertion) => {
          this.headers.unshift('x-gateway-assertion', assertion);
          this.#send();
        })
        .catch((error: unknown) => {
          this.failed(error);
        });
    }
  }

  #send(): void {
    const exchange = this.#exchange;
    if (this.body !== null && exchange.data.expectsContinue) exchange.response.writeContinue();
    this.#sentAt = performance.now();
    try {
      this.#upstream.send(this);
    } catch (error) {
      this.failed(error); // upstream_busy
    }
  }

  onStart(): void {
    this.#exchange.forwarded = true;
  }

  onBody(bytes: number): void {
    const exchange = this.#exchange;
    if (exchange.requestBodyBytes === 0) {
      this.#sentAt = performance.now(); // until then it was its client's to send
      exchange.data.connection.place?.bodyArrived();
    }
    exchange.requestBodyBytes += bytes;
  }

  /** A small one mostly comes in one packet with its head, and needs no events then: a seventh of what a POST costs. */
  bodyAtHand(): Buffer | null {
    const { request } = this.#exchange;
    const isHere = request.complete && request.readableLength === this.bodyBytes;
    return isHere ? (request.read() as Buffer | null) : null;
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
    this.#callback(null, { statusCode: 200, headers: {}, body: new ForwardedResponse(answer) });
  }

  failed(error: unknown): void {
    this.#callback(error instanceof Error ? error : new Error('no error was thrown', { cause: error }));
  }
}

/** Gives the caller the response of the upstream. */
function respond(reply: FastifyReply, { answer }: ForwardedResponse, timeouts: AnswerTimeouts): void {
  try {
    if (answer.body instanceof Readable) passOnInPieces(reply, answer.body, answer, timeouts);
    else passOnWhole(reply, answer.body, answer);
  } catch (error) {
    sendError(reply, error);
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
    const silent = reason instanceof SilentAnswer ? 'upstream_timeout' : 'upstream_failed';
    const code = reason instanceof GatewayError ? reason.code : silent;
    const upstream = exchange.found.match?.route.upstream ?? '';
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
function ownHeaders({ found: { responseHeaders } }: Exchange, headers: HeaderList): HeaderList {
  const own: HeaderList = [];
  for (let index = 0; index + 1 < responseHeaders.length; index += 2) {
    const name = String(responseHeaders[index]);
    if (!hasHeader(headers, name)) own.push(name, responseHeaders[index + 1] ?? '');
  }
  return own;
}

/**
 * Who calls, from where and how, as the gateway found it; the upstream has no other word for it. These stand in front of the
 * client's: a service that reads so many headers alone, as Node does of a thousand, drops the last ones, and tells nobody.
 */
function identityHeaders({ id, facts, credential, trace }: Findings, host: string): string[] {
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
