import httpProxy from '@fastify/http-proxy';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Readable } from 'node:stream';
import type { CallerIdentity } from '../gateway/ports.js';
import type { Credential } from '../policy/facts.js';
import { GatewayError } from './errors.js';
import type { Exchange } from './exchange.js';
import { hasHeader, headersOf } from './header-list.js';
import type { HeaderList } from './header-list.js';
import { http2ResponseOf } from './http2/http2-message.js';
import { whenStalled } from './http2/stalled-answer.js';
import { sendError } from './replies.js';
import { forwardableHeaders } from './reserved-headers.js';
import { proxiedMethods } from './routes.js';
import type { RouteMatch } from './routes.js';
import { traceHeaders } from './trace-context.js';
import type { UpstreamAnswer } from './upstream-answer.js';
import type { Upstream } from './upstream.js';
import { giveWhole } from './whole-answer.js';

/** How long a caller may take over an answer. */
export interface AnswerTimeouts {
  /** Without taking anything of it. */
  readonly stallMilliseconds: number;
  /** From its headers to its last byte. */
  readonly totalMilliseconds: number;
}

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
      const fail = (error: unknown): void => {
        sendError(reply, error);
      };
      const passOn = (answer: UpstreamAnswer): void => {
        try {
          if (Buffer.isBuffer(answer.body)) passOnWhole(reply, answer.body, answer);
          else passOnAsItComes(reply, answer.body, answer, timeouts);
        } catch (error) {
          fail(error);
        }
      };
      try {
        forward(exchange, upstreams, identity).then(passOn, fail);
      } catch (error) {
        fail(error);
      }
    },
  });
}

/** @throws GatewayError, at once or as a rejection */
function forward(
  exchange: Exchange,
  upstreams: ReadonlyMap<string, Upstream>,
  identity: CallerIdentity | null,
): Promise<UpstreamAnswer> {
  const { credential, match } = exchange;
  const upstream = match === null ? undefined : upstreams.get(match.route.upstream);
  if (match === null || upstream === undefined) throw new GatewayError('not_found', 'no upstream has this path');
  if (credential === null) throw new Error('a request without a credential was about to be proxied');

  const headers = forwardableHeaders(exchange.rawHeaders);
  addIdentity(headers, exchange);
  if (identity === null) return send(exchange, upstream, match, credential, headers);
  return identity.assertionFor(credential).then((assertion) => {
    headers.push('x-gateway-assertion', assertion);
    return send(exchange, upstream, match, credential, headers);
  });
}

function send(
  exchange: Exchange,
  upstream: Upstream,
  match: RouteMatch,
  { merchantId }: Credential,
  headers: string[],
): Promise<UpstreamAnswer> {
  const { request, response, target, hasBody } = exchange;
  if (hasBody && exchange.expectsContinue) response.writeContinue();
  const startedAt = performance.now();
  exchange.forwarded = true;
  return upstream.send({
    merchantId,
    method: request.method ?? '',
    target: match.upstreamPath + target.query,
    headers,
    body: hasBody ? request : null,
    bodyBytes: exchange.declaredBytes,
    bodyIsWhole: () => exchange.bodyIsWhole,
    onBody: (bytes) => (exchange.requestBodyBytes += bytes),
    cancellation: exchange.cancellation,
    onHeaders: () => (exchange.upstreamDuration = performance.now() - startedAt),
  });
}

/** Gives the caller an answer that is still to come, piece by piece. */
function passOnAsItComes(
  reply: FastifyReply,
  body: Readable,
  { statusCode, headers }: UpstreamAnswer,
  timeouts: AnswerTimeouts,
): void {
  const { exchange } = reply.request;
  body.once('error', (error: Error) => {
    const reason = exchange.cancellation.reason ?? error;
    exchange.outcome = reason instanceof GatewayError ? reason.code : 'upstream_failed';
    exchange.detail = `${exchange.match?.route.upstream ?? ''}: the answer broke off: ${error.message}`;
  });
  // Paused, because a stream that is only looked at would begin to flow before there is somewhere to go.
  body.pause().on('data', (chunk: Buffer) => (exchange.forwardedBodyBytes += chunk.length));
  limitAnswer(exchange, timeouts);
  void reply.code(statusCode).headers(headersOf(exchange.answerHeaders)).headers(headersOf(headers)).send(body);
}

/** Gives the caller an answer that has come whole. */
function passOnWhole(reply: FastifyReply, body: Buffer, answer: UpstreamAnswer): void {
  const { exchange } = reply.request;
  exchange.forwardedBodyBytes = body.length;
  const headers = framed(exchange, answer, body);
  try {
    giveWhole(reply, answer.statusCode, headers, body);
  } catch (error) {
    throw new GatewayError('upstream_failed', 'it answered with a header that is none', { cause: error });
  }
}

/** The headers of a whole answer, with its length. */
function framed(
  { answerHeaders, request }: Exchange,
  { statusCode, headers }: UpstreamAnswer,
  body: Buffer,
): HeaderList {
  const framed: HeaderList = [];
  for (let index = 0; index + 1 < answerHeaders.length; index += 2) {
    const name = String(answerHeaders[index]);
    if (!hasHeader(headers, name)) framed.push(name, answerHeaders[index + 1] ?? ''); // the service's own limits come first
  }
  // What a HEAD and a 304 say is the length of another answer; a 204 has none (RFC 9110 8.6).
  const keepsLength = statusCode === 304 || request.method === 'HEAD';
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = headers[index] ?? '';
    if (name !== 'content-length' || (keepsLength && statusCode !== 204)) framed.push(name, headers[index + 1] ?? '');
  }
  if (!keepsLength && statusCode !== 204) framed.push('content-length', String(body.length));
  return framed;
}

/** A caller who takes nothing of the answer, or a byte from time to time, would keep a place upstream for ever. */
export function limitAnswer(exchange: Exchange, { stallMilliseconds, totalMilliseconds }: AnswerTimeouts): void {
  const { response } = exchange;
  const http2 = http2ResponseOf(response);
  if (http2 === null) {
    const { socket } = response;
    response.setTimeout(stallMilliseconds, () => {
      if (waitsForCaller(exchange)) response.destroy();
    });
    // It is the socket's: the request behind this one may wait longer for its upstream. Before Node sets that of idleness.
    response.prependOnceListener('finish', () => socket?.setTimeout(0));
  } else {
    whenStalled(
      http2,
      stallMilliseconds,
      () => exchange.responseBodyBytes,
      () => response.destroy(),
    );
  }
  if (exchange.callerIsGone) return; // the caller has left, and the answer goes nowhere
  const end = setTimeout(() => {
    exchange.detail = `the answer was not over after ${totalMilliseconds / 1000} s`;
    if (exchange.ownBodyBytes === null && !waitsForCaller(exchange)) exchange.outcome = 'upstream_timeout';
    response.destroy();
  }, totalMilliseconds);
  response.once('close', () => {
    clearTimeout(end);
  });
}

/** Whether there is something of the answer that the caller has not taken yet. */
export function waitsForCaller({ response }: Exchange): boolean {
  return response.writableLength > 0 || (response.socket?.writableLength ?? 0) > 0;
}

/** Adds who calls, from where and how, as the gateway found it; the upstream has no other word for it. */
function addIdentity(headers: string[], { id, facts, credential, host, trace }: Exchange): void {
  if (facts === null || credential === null) throw new Error('a request without a credential was about to be proxied');
  headers.push('x-merchant-id', credential.merchantId);
  headers.push('x-merchant-key-id', credential.keyId);
  headers.push('x-merchant-environment', credential.environment);
  headers.push('x-request-id', id);
  headers.push('x-forwarded-for', facts.clientAddress.text);
  headers.push('x-forwarded-proto', facts.secure ? 'https' : 'http');
  headers.push('x-forwarded-host', host);
  if (trace !== null) headers.push(...traceHeaders(trace));
}
