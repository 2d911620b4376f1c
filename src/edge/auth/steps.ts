import { lookupIdOf } from '../../gateway/api-key.js';
import { authenticate, type Verdict } from '../../gateway/authenticate.js';
import { type Eventual, follow } from '../../gateway/eventual.js';
import { type KeyStore, KeyStoreUnavailable } from '../../gateway/key-store.js';
import { type DenialCode, Undecidable } from '../../policy/decision-table.js';
import type { RequestFacts } from '../../policy/facts.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { keyFormatOf } from '../../policy/key-format.js';
import { uniqueId } from '../../telemetry/unique-id.js';
import { effectiveTrustedProxies, resolveClientAddress, throttledSource } from '../../policy/client-address.js';
import type { ConnectionFacts } from '../request/connection-facts.js';
import { GatewayError } from '../request/errors.js';
import type { Findings } from '../request/findings.js';
import { requireProtocol } from '../request/protocol.js';
import type { RequestData } from '../request/request-data.js';
import { factsOf } from '../request/request-facts.js';
import { requestIdOf, traceContextOf } from '../request/trace-context.js';
import { type PathProblem, proxiedMethods, type RouteMatch } from '../request/routes.js';
import type { StepSources, WaitingClient } from './step-sources.js';

/**
 * Runs the checks of a request in the order below, before its body is read. Unknown paths and methods undergo the same
 * checks, because only a caller with a valid key is allowed to learn which paths exist. The proxy (proxy/proxy.ts) then
 * forwards an accepted request, or the gateway itself responds (response/own-responses.ts).
 * @returns the code of the denial; null if the request is accepted
 * @throws GatewayError if the request fails for a reason other than a rule
 */
export function runSteps(
  request: RequestData,
  found: Findings,
  caller: WaitingClient,
  sources: StepSources,
): Eventual<DenialCode | null> {
  const { headers, connection, target } = request;
  const proxies = effectiveTrustedProxies(connection.mayForward, sources.trustedProxies);
  const fromProxy = connection.remote !== null && proxies.contains(connection.remote);
  // Set the request id first, so that every response and every log line has it.
  found.id = requestIdOf(headers.requestId, fromProxy, sources.containsKey);
  found.responseHeaders.push('x-request-id', found.id);
  // Resolve the client address before any check can fail. Otherwise the log lines of an attack through a proxy would
  // lack the attacker's address.
  found.clientAddress = connection.remote && resolveClientAddress(connection.remote, headers.forwardedFor, proxies);
  // The log line of a rejected request needs the caller's trace id too.
  found.trace = traceContextOf(headers.traceparent, headers.tracestate, sources.traces?.sample() ?? null);
  // The log shows a fingerprint instead of the key, also for rejected requests.
  const key = presentedKey(request);
  const lookupId = key === null ? null : lookupIdOf(key, sources.pepper);
  if (key !== null && lookupId !== null) found.keyFingerprint = sources.fingerprints.of(key, lookupId);
  // While the access log cannot be written, reject every request, because each must be logged.
  requireLog(sources);
  // An overloaded process must skip the expensive steps below.
  requireCapacity(sources);
  // Reject ambiguous requests, which the gateway and a service could interpret differently.
  requireProtocol(request, sources.headLimits);
  // The route determines which permission the key needs.
  const place = sources.routes(target.path);
  found.match = 'route' in place ? place : null;
  // Reject a request whose client address is unknown. No list contains an unknown address, so the Tor check would let
  // the request pass.
  const address = requireAddress(request, found.clientAddress);
  found.location = sources.geoIp?.locate(address) ?? null;
  // Collect all facts (the inputs of the access rules) before applying the rules, because the rules do no I/O.
  const listed = sources.torExits.has(address);
  if (listed === true) found.torListDigest = sources.torExits.digest;
  const facts = (found.facts = factsOf({ request, address, listed, proxies, match: found.match }, sources));
  // Apply the rules about the request, look up the key, then apply the rules about the key and its merchant.
  const store = key === null ? sources.keyStore : storeFor(facts, key, fromProxy ? null : connection, sources);
  return follow(decide(found, facts, lookupId ?? '', store), ({ denial, credential, keyLookup }) => {
    found.credential = credential;
    found.keyLookup = keyLookup;
    if (keyLookup === null) found.exposedLookupId = lookupId;
    requireConnectedClient(caller, 'its key was being looked up');
    // The throttle counts denials by source. For a throttled source, it can throw a 429, which replaces the denial.
    if (denial !== null) {
      sources.throttle?.denied(throttledSource(address, sources.trustedProxies), denial);
      return denial;
    }
    // Count only accepted requests towards a merchant's rate limit. Otherwise a client without a valid key could use up
    // the merchant's quota.
    return follow(count(credential.merchantId, found, sources), (waited) => {
      if (waited) requireConnectedClient(caller, 'the request was being counted for rateLimit');
      // Last check: only a caller with a valid key is allowed to see errors about path, method or body length.
      requireServable(request, place, sources.maxBodyBytes);
      return null;
    });
  });
}

/**
 * Used instead of `runSteps` for a pipelined request that cannot get a response, for example because the connection
 * closes after the response to an earlier request. The gateway does not serve such a request, so its log line needs
 * only an id.
 */
export function skipSteps(found: Findings): void {
  found.id = uniqueId();
}

/** Returns the API key, if the request has exactly one in a valid format; otherwise null. */
function presentedKey({ headers: { apiKey } }: RequestData): string | null {
  const format = keyFormatOf(apiKey);
  return format === 'live' || format === 'test' ? (apiKey[0] ?? null) : null;
}

function requireLog({ requiredLog }: StepSources): void {
  const problem = requiredLog.problem();
  if (problem !== null) throw new GatewayError('access_log_unavailable', problem);
}

function requireCapacity({ overload }: StepSources): void {
  const problem = overload.problem();
  if (problem !== null) throw new GatewayError('overloaded', problem);
}

function requireAddress({ connection }: RequestData, address: IpAddress | null): IpAddress {
  if (connection.remote === null)
    throw new GatewayError('client_closed', 'the client closed the connection before its address was read');
  if (address !== null) return address;
  throw new GatewayError(
    'invalid_forwarded_for',
    'a trusted proxy sent an X-Forwarded-For entry that is not an IP address',
  );
}

/**
 * Returns the key store. While the throttle is active, the returned store limits look-ups.
 * @param connection the client's own connection; null for a proxy's connection
 */
function storeFor(
  { clientAddress }: RequestFacts,
  key: string,
  connection: ConnectionFacts | null,
  sources: StepSources,
): Pick<KeyStore, 'find'> {
  const { throttle, keyStore, trustedProxies } = sources;
  if (throttle === null || throttle.isQuiet) return keyStore;
  return throttle.sparing(keyStore, { source: throttledSource(clientAddress, trustedProxies), key, connection });
}

/**
 * Applies the rules and measures the time of the key look-up. If the key store or a required Tor exit list is
 * unavailable, the request fails with 503, never with the error for an invalid key.
 */
function decide(
  found: Findings,
  facts: RequestFacts,
  lookupId: string,
  store: Pick<KeyStore, 'find'>,
): Eventual<Verdict> {
  const startedAt = performance.now();
  const note = (verdict: Verdict): Verdict => {
    if (verdict.keyLookup !== null) found.lookupDuration = performance.now() - startedAt;
    return verdict;
  };
  const fail = (error: unknown): never => {
    if (error instanceof GatewayError) throw error; // the throttle rejected the key before any look-up
    // Only a rule about the request itself can be undecidable, so the key was not looked up.
    if (error instanceof Undecidable) throw new GatewayError('tor_list_unavailable', error.message, { cause: error });
    found.lookupDuration = performance.now() - startedAt;
    if (error instanceof KeyStoreUnavailable) {
      throw new GatewayError('key_store_unavailable', error.message, { cause: error });
    }
    throw error;
  };
  try {
    const verdict = authenticate(facts, lookupId, store);
    return verdict instanceof Promise ? verdict.then(note, fail) : note(verdict);
  } catch (error) {
    return fail(error);
  }
}

/**
 * Counts an accepted request towards its merchant's rate limit.
 * @returns whether the count was asynchronous
 */
function count(merchantId: string, { responseHeaders }: Findings, { merchantRate }: StepSources): Eventual<boolean> {
  const counted = merchantRate?.count(merchantId, (headers) => {
    responseHeaders.push(...Object.entries(headers).flat());
  });
  return counted instanceof Promise ? counted.then(() => true) : false;
}

/** Fails a request whose client disconnected during the previous step. */
function requireConnectedClient({ callerIsGone }: WaitingClient, meanwhile: string): void {
  if (callerIsGone) throw new GatewayError('client_closed', `the client disconnected while ${meanwhile}`);
}

/** Rejects a path, method or body length that the gateway cannot serve. Called only for a request with a valid key. */
function requireServable(
  { method, declaredBytes }: RequestData,
  place: RouteMatch | PathProblem,
  maxBodyBytes: number,
): void {
  if ('code' in place) throw new GatewayError(place.code, place.reason);
  if (!place.route.methods.includes(method)) throw unsupportedMethod(method);
  if ((declaredBytes ?? 0) > maxBodyBytes) {
    throw new GatewayError('body_too_large', `Content-Length exceeds the limit of ${maxBodyBytes} bytes`);
  }
}

function unsupportedMethod(method: string): GatewayError {
  const reason = proxiedMethods.includes(method) ? 'is not a method of this route' : 'is not proxied';
  return new GatewayError('method_not_allowed', `${method} ${reason}`);
}
