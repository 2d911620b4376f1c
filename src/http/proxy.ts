import type { IncomingHttpHeaders } from 'node:http';
import httpProxy from '@fastify/http-proxy';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { CallerIdentity } from '../gateway/ports.js';
import { GatewayError } from './errors.js';
import type { Exchange } from './exchange.js';
import { sendError } from './replies.js';
import { forwardableHeaders } from './reserved-headers.js';
import { proxiedMethods } from './routes.js';
import { traceHeaders } from './trace-context.js';
import type { Upstream, UpstreamResponse } from './upstream.js';

/** Under this key the exchange travels through the plugin to the transport; a symbol is never sent as a header. */
const exchangeKey = Symbol('exchange');

/** How long a caller may take over an answer. */
export interface AnswerTimeouts {
  /** Without taking anything of it. */
  readonly stallMilliseconds: number;
  /** From its headers to its last byte. */
  readonly totalMilliseconds: number;
}

interface ProxiedRequest {
  readonly headers: { readonly [exchangeKey]: Exchange };
}

type ProxyCallback = (error: unknown, response?: UpstreamResponse) => void;

/**
 * Registers the proxy for every route. @fastify/http-proxy carries requests and answers; what goes upstream, and how,
 * is decided here, because the plugin's own transport retries, does not verify TLS, waits for minutes and passes
 * identity headers on.
 * @param identity signs who calls; null: upstreams get no signature
 */
export function registerProxy(
  app: FastifyInstance,
  upstreams: ReadonlyMap<string, Upstream>,
  timeouts: AnswerTimeouts,
  identity: CallerIdentity | null,
): void {
  const transport = {
    request({ headers }: ProxiedRequest, done: ProxyCallback): void {
      forward(headers[exchangeKey], upstreams, timeouts, identity).then(
        (response) => {
          done(null, response);
        },
        (error: unknown) => {
          done(error);
        },
      );
    },
  };
  void app.register(httpProxy, {
    // Only the exchange says where a request goes; the plugin wants an origin all the same.
    upstream: 'http://upstream.invalid',
    prefix: '/',
    httpMethods: [...proxiedMethods],
    undici: transport as never,
    retryMethods: [],
    disableRequestLogging: true,
    internalRewriteLocationHeader: false,
    replyOptions: {
      rewriteRequestHeaders: (request) =>
        ({ [exchangeKey]: (request as unknown as FastifyRequest).exchange }) as IncomingHttpHeaders,
      onError: (reply, { error }) => {
        sendError(reply as unknown as FastifyReply, error.cause ?? error);
      },
    },
  });
}

async function forward(
  exchange: Exchange,
  upstreams: ReadonlyMap<string, Upstream>,
  timeouts: AnswerTimeouts,
  identity: CallerIdentity | null,
): Promise<UpstreamResponse> {
  const { credential, match, request, response, target } = exchange;
  const upstream = match === null ? undefined : upstreams.get(match.route.upstream);
  if (match === null || upstream === undefined) throw new GatewayError('not_found', 'no upstream has this path');
  if (credential === null) throw new Error('a request without a credential was about to be proxied');

  if (exchange.facts?.access === 'read') {
    // What changes nothing is not carried on for a caller who has hung up; what may have changed something is.
    response.once('close', () => {
      exchange.cancel(new GatewayError('client_closed', 'the client went away'));
    });
  }
  const callerHeaders = identityHeaders(exchange);
  if (identity !== null && exchange.credential !== null) {
    callerHeaders.push('x-gateway-assertion', await identity.assertionFor(exchange.credential));
  }
  const expectsContinue = request.headers.expect?.toLowerCase() === '100-continue' && request.httpVersion !== '1.0';
  if (exchange.hasBody && expectsContinue) response.writeContinue();

  const startedAt = performance.now();
  exchange.forwarded = true;
  const answer = await upstream.send({
    merchantId: credential.merchantId,
    method: request.method ?? '',
    target: match.upstreamPath + target.query,
    headers: [...forwardableHeaders(exchange.rawHeaders), ...callerHeaders],
    body: exchange.hasBody ? request : null,
    bodyIsWhole: () => exchange.bodyIsWhole,
    onBody: (bytes) => (exchange.requestBodyBytes += bytes),
    signal: exchange.signal,
    cancel: (reason) => {
      exchange.cancel(reason);
    },
  });
  exchange.upstreamDuration = performance.now() - startedAt;
  answer.body.once('error', (error: Error) => {
    const { reason } = exchange.signal as { reason: unknown };
    exchange.outcome = reason instanceof GatewayError ? reason.code : 'upstream_failed';
    exchange.detail = `${match.route.upstream}: the answer broke off: ${error.message}`;
  });
  // Paused, because a stream that is only looked at would begin to flow before there is somewhere to go.
  answer.body.pause().on('data', (chunk: Buffer) => (exchange.forwardedBodyBytes += chunk.length));
  limitAnswer(exchange, timeouts);
  return answer;
}

/** A caller who takes nothing of the answer, or a byte from time to time, would keep a place upstream for ever. */
function limitAnswer(exchange: Exchange, { stallMilliseconds, totalMilliseconds }: AnswerTimeouts): void {
  const { response } = exchange;
  const waitsForCaller = (): boolean => response.writableLength > 0 || (response.socket?.writableLength ?? 0) > 0;
  response.setTimeout(stallMilliseconds, () => {
    if (waitsForCaller()) response.destroy();
  });
  if (response.closed) return; // the caller has left, and the answer goes nowhere
  const end = setTimeout(() => {
    exchange.detail = `the answer was not over after ${totalMilliseconds / 1000} s`;
    if (!waitsForCaller()) exchange.outcome = 'upstream_timeout';
    response.destroy();
  }, totalMilliseconds);
  response.once('close', () => {
    clearTimeout(end);
  });
}

/** Who calls, from where and how, as the gateway found it; the upstream has no other word for it. */
function identityHeaders({ id, facts, credential, host, trace }: Exchange): string[] {
  if (facts === null || credential === null) throw new Error('a request without a credential was about to be proxied');
  return [
    ...['x-merchant-id', credential.merchantId],
    ...['x-merchant-key-id', credential.keyId],
    ...['x-merchant-environment', credential.environment],
    ...['x-request-id', id],
    ...['x-forwarded-for', facts.clientAddress.text],
    ...['x-forwarded-proto', facts.secure ? 'https' : 'http'],
    ...['x-forwarded-host', host],
    ...(trace === null ? [] : traceHeaders(trace)),
  ];
}
