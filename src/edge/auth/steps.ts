import { lookupIdOf, type Pepper } from '../../gateway/api-key.js';
import { authenticate, type Verdict } from '../../gateway/authenticate.js';
import { type Eventual, follow } from '../../gateway/eventual.js';
import { type KeyStore, KeyStoreUnavailable, type TraceExport } from '../../gateway/ports.js';
import { type DenialCode, Undecidable } from '../../policy/decision-table.js';
import type { RequestFacts } from '../../policy/facts.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { keyFormatOf } from '../../policy/key-format.js';
import type { KeyFingerprints } from '../../telemetry/key-fingerprint.js';
import { uniqueId } from '../../telemetry/unique-id.js';
import { believedProxies, resolveClientAddress, sourceOf } from '../request/client-address.js';
import { GatewayError } from '../request/errors.js';
import type { Findings } from '../request/exchange.js';
import { type HeadLimits, requireProtocol } from '../request/protocol.js';
import type { RequestData } from '../request/request-data.js';
import { factsOf, type FactSources } from '../request/request-facts.js';
import { requestIdOf, traceContextOf } from '../request/trace-context.js';
import { type PathProblem, proxiedMethods, type RouteMatch, type RouteTable } from '../request/routes.js';
import type { BadKeyThrottle } from './bad-key-throttle.js';
import type { MerchantRate } from './merchant-rate.js';

/** What the steps need besides the request. */
export interface StepSources extends FactSources {
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

/** Whoever waits for the response. */
export interface Caller {
  /** Whether it has left before the response was complete. */
  readonly callerIsGone: boolean;
}

/**
 * The steps of every request, in this order, before a byte of its body is read; also of one for an unknown path or method: only
 * a valid key learns which exist. Behind the last one the proxy forwards the request (proxy/proxy.ts).
 * @returns the rule that denies the request; null where it is accepted
 * @throws GatewayError for one that fails otherwise than by being denied
 */
export function takeSteps(
  request: RequestData,
  found: Findings,
  caller: Caller,
  sources: StepSources,
): Eventual<DenialCode | null> {
  const { headers, connection, target } = request;
  const proxies = believedProxies(connection.mayForward, sources.trustedProxies);
  const fromProxy = connection.remote !== null && proxies.contains(connection.remote);
  // First, so that every response and every line has it.
  found.id = requestIdOf(headers.requestId, fromProxy);
  found.responseHeaders.push('x-request-id', found.id);
  // Before anything is refused: who is behind a proxy would else have no name in the lines of an attack.
  found.clientAddress = connection.remote && resolveClientAddress(connection.remote, headers.forwardedFor, proxies);
  // The line of a refused request belongs to its caller's trace too.
  found.trace = traceContextOf(headers.traceparent, headers.tracestate, sources.traces?.sample() ?? null);
  // Its name in the log, in place of the key, whatever becomes of the request.
  const key = presentedKey(request);
  const lookupId = key === null ? null : lookupIdOf(key, sources.pepper);
  if (key !== null && lookupId !== null) found.keyFingerprint = sources.fingerprints.of(key, lookupId);
  // Nothing is done that could not be logged.
  requireLog(sources);
  // Before the costly steps, which a process that does not keep up has to leave out.
  requireCapacity(sources);
  // What two readers could understand differently is decided by neither.
  requireProtocol(request, sources.headLimits);
  // The route tells which permission the key needs.
  const place = sources.routes(target.path);
  found.match = 'route' in place ? place : null;
  // An address that nobody knows is on no list: it must not pass for one that is not a Tor exit.
  const address = requireAddress(request, found.clientAddress);
  found.whereabouts = sources.geoIp?.whereabouts(address) ?? null;
  // All that the rules look at, so that they need to ask nobody.
  const listed = sources.torExits.has(address);
  if (listed === true) found.torListDigest = sources.torExits.digest;
  const facts = (found.facts = factsOf({ request, address, listed, proxies, match: found.match }, sources));
  // The decision: the rules about the request, the key's record, the rules about that.
  const store = key === null ? sources.keyStore : storeFor(facts, key, fromProxy ? null : connection, sources);
  return follow(decide(found, facts, lookupId ?? '', store), ({ denial, credential, answer }) => {
    found.credential = credential;
    found.answer = answer;
    if (answer === null) found.exposedLookupId = lookupId;
    requireCaller(caller, 'the key was looked up');
    // A denial counts against its source, and may turn into 429.
    if (denial !== null) {
      sources.throttle?.denied(sourceOf(address), denial);
      return denial;
    }
    // Only what is accepted counts against a merchant's rate, so that nobody else can use it up.
    return follow(count(credential.merchantId, found, sources), (waited) => {
      if (waited) requireCaller(caller, 'its request was counted');
      // Last: a valid key learns here that its path, method or length cannot be served.
      requireServable(request, place, sources.maxBodyBytes);
      return null;
    });
  });
}

/** In place of all steps, behind a request that ended the connection: only its line in the log needs a name. */
export function leaveOut(found: Findings): void {
  found.id = uniqueId();
}

/** The key that came with a request, where it came once and has the form of one. */
function presentedKey({ headers: { apiKey } }: RequestData): string | null {
  const format = keyFormatOf(apiKey);
  return format === 'live' || format === 'test' ? (apiKey[0] ?? null) : null;
}

function requireLog({ accessLogProblem }: StepSources): void {
  const problem = accessLogProblem();
  if (problem !== null) throw new GatewayError('access_log_unavailable', problem);
}

function requireCapacity({ overload }: StepSources): void {
  const problem = overload();
  if (problem !== null) throw new GatewayError('overloaded', problem);
}

function requireAddress({ connection }: RequestData, address: IpAddress | null): IpAddress {
  if (connection.remote === null) throw new GatewayError('client_closed', 'the socket has no peer any more');
  if (address !== null) return address;
  throw new GatewayError('invalid_forwarded_for', 'a trusted proxy sent an X-Forwarded-For entry that is no address');
}

/** The key store as a request may ask it. @param connection the client's own; null: a proxy's */
function storeFor(
  { clientAddress }: RequestFacts,
  key: string,
  connection: object | null,
  { throttle, keyStore }: StepSources,
): Pick<KeyStore, 'find'> {
  if (throttle === null || throttle.isQuiet) return keyStore;
  return throttle.sparing(keyStore, { source: sourceOf(clientAddress), key, connection });
}

/** Decides by the rules, and notes how long the look-up took. An outage must never look like a bad key. */
function decide(
  found: Findings,
  facts: RequestFacts,
  lookupId: string,
  store: Pick<KeyStore, 'find'>,
): Eventual<Verdict> {
  const startedAt = performance.now();
  const note = (verdict: Verdict): Verdict => {
    if (verdict.answer !== null) found.lookupDuration = performance.now() - startedAt;
    return verdict;
  };
  const fail = (error: unknown): never => {
    if (error instanceof GatewayError) throw error; // throttled: nothing was looked up
    found.lookupDuration = performance.now() - startedAt;
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

/** Counts an accepted request against its merchant's rate. @returns whether that took longer than a moment */
function count(merchantId: string, { responseHeaders }: Findings, { merchantRate }: StepSources): Eventual<boolean> {
  const counted = merchantRate?.count(merchantId, (told) => {
    responseHeaders.push(...Object.entries(told).flat());
  });
  return counted instanceof Promise ? counted.then(() => true) : false;
}

/** Where nobody waits for the response any more, what has not begun is not carried out. */
function requireCaller({ callerIsGone }: Caller, meanwhile: string): void {
  if (callerIsGone) throw new GatewayError('client_closed', `the caller left while ${meanwhile}`);
}

/** Refuses what a valid key cannot be served. */
function requireServable(
  { method, declaredBytes }: RequestData,
  place: RouteMatch | PathProblem,
  maxBodyBytes: number,
): void {
  if ('code' in place) throw new GatewayError(place.code, place.reason);
  if (!proxiedMethods.includes(method)) throw new GatewayError('method_not_allowed', `${method} is not proxied`);
  if ((declaredBytes ?? 0) > maxBodyBytes) {
    throw new GatewayError('body_too_large', `content-length is above ${maxBodyBytes}`);
  }
}
