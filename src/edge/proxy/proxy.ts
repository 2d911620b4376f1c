import { Readable } from 'node:stream';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import httpProxy from '@fastify/http-proxy';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Dispatcher } from 'undici';
import type { CallerIdentity } from '../../gateway/ports.js';
import type { Credential } from '../../policy/facts.js';
import { streamResponse, sendResponse } from '../response/whole-response.js';
import type { Cancellation, Exchange } from '../request/exchange.js';
import type { Findings } from '../request/findings.js';
import { GatewayError } from '../request/errors.js';
import { hasHeader, type HeaderList } from '../request/request-data.js';
import { type ResponseTimeouts, limitResponse } from '../response/limit-response.js';
import { sendError } from '../response/replies.js';
import { forwardableHeaders } from '../request/reserved-headers.js';
import { proxiedMethods } from '../request/routes.js';
import { addTraceHeaders } from '../request/trace-context.js';
import { ResponseTimeout, type UpstreamResponse } from '../http1/response-reader.js';
import type { UpstreamRequest } from './upstream-request.js';
import type { Upstream } from './upstream.js';

/** Dependencies of the proxy. */
export interface ProxyOptions {
  readonly upstreams: ReadonlyMap<string, Upstream>;
  readonly timeouts: ResponseTimeouts;
  /** The signer of assertions (JWTs that name the merchant) for upstreams; null if assertions are not configured. */
  readonly identity: CallerIdentity | null;
}

/**
 * The key under which the headers object holds the upstream request. The plugin @fastify/http-proxy passes only a
 * headers object to its HTTP client, so this object must also hold the request.
 */
const forwarded = Symbol('forwarded request');

/**
 * Options that the plugin @fastify/http-proxy passes to its HTTP client. The gateway's client reads only the headers.
 */
interface PluginRequest {
  readonly headers: { readonly [forwarded]: ForwardedRequest };
}

/**
 * Registers the plugin @fastify/http-proxy for every route, with the gateway's own HTTP/1.1 client. The plugin's
 * default client would retry a request after a lost response. The plugin would also alter the path (`new URL`) and the
 * headers (one value per name). Therefore the plugin only passes on an object that contains the unaltered upstream
 * request.
 */
export function registerProxy(app: FastifyInstance, options: ProxyOptions): void {
  const client = {
    request({ headers }: PluginRequest, callback: Callback): void {
      headers[forwarded].send(callback);
    },
  };
  void app.register(httpProxy, {
    // A placeholder: the forwarded request itself contains the upstream of its route.
    upstream: 'http://upstream.invalid',
    prefix: '/',
    httpMethods: [...proxiedMethods],
    undici: client as unknown as { request: Dispatcher['request'] },
    retryMethods: [],
    disableRequestLogging: true,
    // Return nothing. The plugin's default handler returns the reply, and Fastify would await it like a promise.
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

/** The plugin's callback, for an error or a response. */
type Callback = (
  error: Error | null,
  response?: { readonly statusCode: number; readonly headers: object; readonly body: ForwardedResponse },
) => void;

/** An upstream response that @fastify/reply-from passes on. The plugin destroys it if the client has disconnected. */
class ForwardedResponse {
  constructor(readonly response: UpstreamResponse) {}

  destroy(): void {
    const { body } = this.response;
    if (body instanceof Readable) body.destroy();
  }
}

/** The request as sent to its upstream. One object with methods is cheaper than a closure for each callback. */
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
  readonly #credential: Credential;
  readonly #identity: CallerIdentity | null;
  #callback: Callback = () => undefined;
  #sentAt = 0;

  /** @throws GatewayError not_found if the path has no upstream */
  constructor(exchange: Exchange, { upstreams, identity }: ProxyOptions) {
    const { request, data, found } = exchange;
    const { credential, match } = found;
    const upstream = upstreams.get(match?.route.upstream ?? '');
    if (match === null || upstream === undefined) throw new GatewayError('not_found', 'no upstream serves this path');
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
    this.#credential = credential;
    this.#identity = identity;
  }

  /**
   * Sends the request, with a signed assertion (JWT that names the merchant) if configured. Calls the callback once,
   * with the response or an error.
   */
  send(callback: Callback): void {
    this.#callback = callback;
    if (this.#identity === null) this.#send();
    else {
      this.#identity
        .assertionFor(this.#credential, this.#exchange.found.match?.route.upstream ?? '')
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
      this.failed(error); // upstream_busy: no permit is available
    }
  }

  onStart(): void {
    this.#exchange.forwarded = true;
  }

  onBody(bytes: number): void {
    const exchange = this.#exchange;
    if (exchange.requestBodyBytes === 0) {
      this.#sentAt = performance.now(); // do not count the time spent waiting for the client
      exchange.data.connection.place?.bodyArrived();
    }
    exchange.requestBodyBytes += bytes;
  }

  /**
   * Returns a body of declared length if it has arrived completely, as most small bodies have; otherwise null. Skipping
   * stream events saves a seventh of a POST's cost.
   */
  bodyAtHand(): Buffer | null {
    const { request } = this.#exchange;
    const isHere = request.complete && request.readableLength === this.bodyBytes;
    return isHere ? (request.read() as Buffer | null) : null;
  }

  bodyIsWhole(): boolean {
    return this.#exchange.request.complete;
  }

  /**
   * Discards the rest of the body. Otherwise the rest would precede the next request on the connection. Node itself
   * discards only a body that was never read.
   */
  onUploadEnd(): void {
    this.#exchange.request.resume();
  }

  onHeaders(): void {
    this.#exchange.upstreamDuration = performance.now() - this.#sentAt;
  }

  onResponse(response: UpstreamResponse): void {
    this.#callback(null, { statusCode: 200, headers: {}, body: new ForwardedResponse(response) });
  }

  failed(error: unknown): void {
    this.#callback(error instanceof Error ? error : new Error('a non-Error value was thrown', { cause: error }));
  }
}

/** Sends the upstream response to the client. */
function respond(reply: FastifyReply, { response }: ForwardedResponse, timeouts: ResponseTimeouts): void {
  try {
    if (response.body instanceof Readable) passOnInPieces(reply, response.body, response, timeouts);
    else passOnWhole(reply, response.body, response);
  } catch (error) {
    sendError(reply, error);
  }
}

/** Streams a response to the client while the upstream sends it. */
function passOnInPieces(
  reply: FastifyReply,
  body: Readable,
  { statusCode, headers }: UpstreamResponse,
  timeouts: ResponseTimeouts,
): void {
  const { exchange } = reply.request;
  body.once('error', (error: Error) => {
    const reason = exchange.cancellation.reason ?? error;
    const silent = reason instanceof ResponseTimeout ? 'upstream_timeout' : 'upstream_failed';
    const code = reason instanceof GatewayError ? reason.code : silent;
    const upstream = exchange.found.match?.route.upstream ?? '';
    sendError(
      reply,
      new GatewayError(code, `${upstream}: the response was cut off (${error.message})`, { cause: reason }),
    );
  });
  limitResponse(exchange, timeouts);
  streamResponse(reply, statusCode, [...ownHeaders(exchange, headers), ...headers], body);
}

/** Sends a complete response to the client. */
function passOnWhole(reply: FastifyReply, body: string, response: UpstreamResponse): void {
  const { exchange } = reply.request;
  exchange.forwardedBodyBytes = body.length;
  const headers = framed(exchange, response, body.length);
  try {
    sendResponse(reply, response.statusCode, headers, body);
  } catch (error) {
    throw new GatewayError('upstream_failed', 'invalid header in the upstream response', { cause: error });
  }
}

/** Returns the headers of a complete response, with its Content-Length. */
function framed(exchange: Exchange, { statusCode, headers }: UpstreamResponse, length: number): HeaderList {
  const framed = ownHeaders(exchange, headers);
  // For HEAD and 304, Content-Length is that of the corresponding 200 response, so the upstream's value stays. A 204
  // must not have Content-Length (RFC 9110 8.6).
  const keepsLength = statusCode === 304 || exchange.request.method === 'HEAD';
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = headers[index] ?? '';
    if (name !== 'content-length' || (keepsLength && statusCode !== 204)) framed.push(name, headers[index + 1] ?? '');
  }
  if (!keepsLength && statusCode !== 204) framed.push('content-length', String(length));
  return framed;
}

/**
 * Returns the headers that the gateway adds to a response. Omits headers that the service set itself, such as its own
 * rate limits.
 */
function ownHeaders({ found: { responseHeaders } }: Exchange, headers: HeaderList): HeaderList {
  const own: HeaderList = [];
  for (let index = 0; index + 1 < responseHeaders.length; index += 2) {
    const name = String(responseHeaders[index]);
    if (!hasHeader(headers, name)) own.push(name, responseHeaders[index + 1] ?? '');
  }
  return own;
}

/**
 * Returns headers with the caller's identity, address and protocol as verified by the gateway. An upstream has no other
 * reliable source for these facts. These headers precede the client's headers, because a service with a header limit
 * silently drops the last headers. Node does so after 1,000 headers.
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
