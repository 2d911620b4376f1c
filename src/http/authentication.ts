import type { FastifyReply, FastifyRequest } from 'fastify';
import { lookupIdOf } from '../gateway/api-key.js';
import type { Pepper } from '../gateway/api-key.js';
import { authenticate } from '../gateway/authenticate.js';
import type { Verdict } from '../gateway/authenticate.js';
import { follow } from '../gateway/eventual.js';
import type { Eventual } from '../gateway/eventual.js';
import { KeyStoreUnavailable } from '../gateway/ports.js';
import type { KeyStore } from '../gateway/ports.js';
import type { TraceExport } from '../gateway/ports.js';
import type { DenialCode } from '../policy/denials.js';
import type { RequestFacts } from '../policy/facts.js';
import { keyFormatOf } from '../policy/key-format.js';
import { Undecidable } from '../policy/undecidable.js';
import type { KeyFingerprints } from '../telemetry/key-fingerprint.js';
import { denialFailure } from './envelope.js';
import { GatewayError } from './errors.js';
import type { Exchange } from './exchange.js';
import type { MerchantRate } from './merchant-rate.js';
import { requireProtocol } from './protocol.js';
import type { HeadLimits } from './protocol.js';
import { sendFailure } from './replies.js';
import { believedProxies, clientAddressOf, factsOf } from './request-facts.js';
import type { FactSources } from './request-facts.js';
import type { DecisiveHeaders } from './request-headers.js';
import { requestIdOf } from './request-id.js';
import { proxiedMethods } from './routes.js';
import type { PathProblem, RouteMatch, RouteTable } from './routes.js';
import { sourceOf } from './source.js';
import type { BadKeyThrottle } from './throttle/bad-key-throttle.js';
import { traceContextOf } from './trace-context.js';

/** What the hook needs. */
export interface AuthenticationHookOptions extends FactSources {
  readonly keyStore: Pick<KeyStore, 'find' | 'knows'>;
  /** HMAC pepper of the look-up ids; null: plain SHA-256. */
  readonly pepper: Pepper | null;
  readonly routes: RouteTable;
  readonly headLimits: HeadLimits;
  readonly maxBodyBytes: number;
  readonly fingerprints: KeyFingerprints;
  /** Null: traces are kept nowhere. */
  readonly traces: Pick<TraceExport, 'sample'> | null;
  /** Null: requests without an acceptable key are not counted. */
  readonly throttle: BadKeyThrottle | null;
  /** Null: merchants may ask as much as they want. */
  readonly merchantRate: MerchantRate | null;
  /** Why the access log cannot be written; null while it can. */
  readonly accessLogProblem: () => string | null;
  /** Why further requests would only make all of them slower; null while the process keeps up. */
  readonly overload: () => string | null;
}

/**
 * The `onRequest` hook through which every request goes, also those for unknown paths and methods, before a byte of
 * its body is read. Only a request with a valid key learns whether its path and method exist.
 */
export function authenticationHook(options: AuthenticationHookOptions) {
  return ({ exchange }: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void => {
    const goOn = (denial: DenialCode | null): void => {
      if (denial === null && exchange.credential !== null)
        exchange.connection.place?.accepted(exchange.credential.merchantId);
      exchange.decided();
      if (denial === null) done();
      else sendFailure(reply, denialFailure(denial));
    };
    const fail = (error: unknown): void => {
      exchange.decided();
      done(error instanceof Error ? error : new Error('something was thrown that is no error', { cause: error }));
    };
    let denial: Eventual<DenialCode | null>;
    try {
      denial = judge(exchange, options);
    } catch (error) {
      fail(error);
      return;
    }
    if (denial instanceof Promise) void denial.then(goOn, fail);
    else if (exchange.hasBody)
      void Promise.resolve(denial).then(goOn); // what came of it together with the headers is read by then
    else goOn(denial);
  };
}

/**
 * Finds out everything about a request, and whether it may go on.
 * @throws GatewayError for one that fails otherwise than by being denied
 */
export function judge(exchange: Exchange, options: AuthenticationHookOptions): Eventual<DenialCode | null> {
  const { headers } = exchange;
  const { remote } = exchange.connection;
  const believed = believedProxies(exchange, options.trustedProxies);
  const fromProxy = remote !== null && believed.contains(remote);
  exchange.id = requestIdOf(headers.requestId, fromProxy);
  exchange.answerHeaders.push('x-request-id', exchange.id);
  // Before anything is refused: who is behind a proxy would else have no name in the lines of an attack.
  exchange.clientAddress = clientAddressOf(exchange, believed);

  exchange.trace = traceContextOf(headers.traceparent, headers.tracestate, options.traces?.sample() ?? null);
  const key = presentedKey(headers);
  const lookupId = key === null ? null : lookupIdOf(key, options.pepper);
  if (key !== null && lookupId !== null) exchange.keyFingerprint = options.fingerprints.of(key, lookupId);

  const logProblem = options.accessLogProblem();
  if (logProblem !== null) throw new GatewayError('access_log_unavailable', logProblem);
  const overload = options.overload();
  if (overload !== null) throw new GatewayError('overloaded', overload);
  requireProtocol(exchange.request, headers, exchange.target, options.headLimits);
  const place = options.routes(exchange.target.path);
  exchange.match = 'route' in place ? place : null;
  const facts = factsOf(exchange, headers, options);
  exchange.facts = facts;

  const store = storeFor(facts, key ?? '', fromProxy ? null : exchange.connection, options);
  const verdict = authenticateOrFail(exchange, facts, lookupId ?? '', store);
  return follow(verdict, ({ denial, credential, answer }) => {
    exchange.credential = credential;
    exchange.answer = answer;
    if (answer === null) exchange.exposedLookupId = lookupId;
    requireCaller(exchange, 'the key was looked up');
    if (denial === null) return admit(exchange, credential.merchantId, place, options);
    options.throttle?.denied(sourceOf(facts.clientAddress), denial);
    exchange.outcome = denial;
    return denial;
  });
}

/** The key that came with a request, where it came once and has the form of one. */
function presentedKey({ apiKey }: DecisiveHeaders): string | null {
  const format = keyFormatOf(apiKey);
  return format === 'live' || format === 'test' ? (apiKey[0] ?? null) : null;
}

/** The key store as a request may ask it. @param connection the client's own; null: a proxy's */
function storeFor(
  { clientAddress }: RequestFacts,
  key: string,
  connection: object | null,
  { throttle, keyStore }: AuthenticationHookOptions,
): Pick<KeyStore, 'find'> {
  if (throttle === null || throttle.isQuiet) return keyStore;
  return throttle.sparing(keyStore, { source: sourceOf(clientAddress), key, connection });
}

function authenticateOrFail(
  exchange: Exchange,
  facts: RequestFacts,
  lookupId: string,
  store: Pick<KeyStore, 'find'>,
): Eventual<Verdict> {
  const startedAt = performance.now();
  const note = (verdict: Verdict): Verdict => {
    if (verdict.answer !== null) exchange.lookupDuration = performance.now() - startedAt;
    return verdict;
  };
  const fail = (error: unknown): never => {
    if (error instanceof GatewayError) throw error; // throttled: nothing was looked up
    exchange.lookupDuration = performance.now() - startedAt;
    // An outage must never look like a bad key.
    if (error instanceof KeyStoreUnavailable) {
      throw new GatewayError('key_store_unavailable', error.message, { cause: error });
    }
    if (error instanceof Undecidable) throw new GatewayError('tor_list_unavailable', error.message, { cause: error });
    throw error;
  };
  try {
    const verdict = authenticate(facts, lookupId, store);
    return verdict instanceof Promise ? verdict.then(note, fail) : note(verdict);
  } catch (error) {
    return fail(error);
  }
}

/** Counts a request that was not denied, and lets it go on where it can be served. */
function admit(
  exchange: Exchange,
  merchantId: string,
  place: RouteMatch | PathProblem,
  { merchantRate, maxBodyBytes }: AuthenticationHookOptions,
): Eventual<null> {
  const counted = merchantRate?.count(merchantId, (told) => {
    exchange.answerHeaders.push(...Object.entries(told).flat());
  });
  if (counted instanceof Promise) {
    return counted.then(() => {
      requireCaller(exchange, 'its request was counted');
      requireServable(exchange, place, maxBodyBytes);
      return null;
    });
  }
  requireServable(exchange, place, maxBodyBytes);
  return null;
}

/** Where nobody waits for the answer any more, what has not begun is not carried out. */
function requireCaller(exchange: Exchange, meanwhile: string): void {
  if (exchange.callerIsGone) throw new GatewayError('client_closed', `the caller left while ${meanwhile}`);
}

/** Refuses what a valid key cannot be served. */
function requireServable(exchange: Exchange, place: RouteMatch | PathProblem, maxBodyBytes: number): void {
  const { method = '' } = exchange.request;
  if ('code' in place) throw new GatewayError(place.code, place.reason);
  if (!proxiedMethods.includes(method)) throw new GatewayError('method_not_allowed', `${method} is not proxied`);
  if ((exchange.declaredBytes ?? 0) > maxBodyBytes) {
    throw new GatewayError('body_too_large', `content-length is above ${maxBodyBytes}`);
  }
}
