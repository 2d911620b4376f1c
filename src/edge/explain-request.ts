import { lookupIdOf } from '../gateway/api-key.js';
import { KeyStoreUnavailable, type KeyLookup } from '../gateway/key-store.js';
import { Findings } from './request/findings.js';
import type { StepSources } from './auth/step-sources.js';
import { explainRules } from '../policy/explain.js';
import { reasonOf } from '../policy/decision-table.js';
import type { RuleOutcome } from '../policy/explain.js';
import type { RequestFacts } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import { KeyFingerprints } from '../telemetry/key-fingerprint.js';
import { containsKey } from '../telemetry/mask-keys.js';
import { type Outcome } from './request/exchange.js';
import { runSteps } from './auth/steps.js';
import { resolveClientAddress } from '../policy/client-address.js';
import type { Hop } from '../policy/client-address.js';
import { RequestData } from './request/request-data.js';
import { timeText } from '../telemetry/serialise.js';
import { GatewayError } from './request/errors.js';

/** A hypothetical or past request to explain. */
export interface DescribedRequest {
  readonly method: string;
  /** Path and query of the request. */
  readonly target: string;
  /** Header names and values, in their original order. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** The peer address of the connection. */
  readonly remote: IpAddress;
  readonly tls: boolean;
  /** Time of the request and of the decision on it, in milliseconds since 1970. */
  readonly at: number;
}

/**
 * The inputs of a decision, apart from the request itself and its time. Throttles, rate limits, logs, traces and
 * overload are excluded, because they depend on the current state of a gateway.
 */
export type DecisionSources = Omit<
  StepSources,
  'clock' | 'fingerprints' | 'containsKey' | 'traces' | 'throttle' | 'merchantRate' | 'requiredLog' | 'overload'
>;

/** The decision on a described request, and how it was reached. */
export interface Explanation {
  readonly code: Outcome;
  /** Why the request is not accepted; null if it is accepted. */
  readonly detail: string | null;
  /** The inputs of the access rules; null if the request was rejected before they were known. */
  readonly facts: RequestFacts | null;
  /** The hops of the request: each address on its path, from the peer to the client address. */
  readonly hops: readonly Hop[];
  /** The configured path of the matching route; null without a match. */
  readonly route: string | null;
  readonly torListDigest: string | null;
  /**
   * The key store's result. Null if the request has no well-formed key, if `facts` is null, or if the store is
   * unavailable.
   */
  readonly keyLookup: KeyLookup | null;
  /** The result of each access rule, in order; empty if `facts` is null. */
  readonly rules: readonly RuleOutcome[];
}

/** Explains the decision on a described request. Runs the same steps as for a real request. */
export async function explainRequest(described: DescribedRequest, sources: DecisionSources): Promise<Explanation> {
  const { method, target, remote, at } = described;
  const origin = { remote, via: 'peer' as const, port: null, mayForward: true, place: null };
  const connection = { ...origin, tls: described.tls ? '{}' : null, usedFirstLookup: false };
  const request = new RequestData(method, '1.1', target, described.headers.flat(), connection, at);
  const found = new Findings([]);
  const { code, detail } = await decisionOn(request, found, sources);
  const { facts, match, torListDigest } = found;
  const isWellFormed = facts?.keyFormat === 'live' || facts?.keyFormat === 'test';
  const keyLookup = isWellFormed ? await lookUpKey(request, found, sources) : null;
  const hops: Hop[] = [];
  resolveClientAddress(remote, request.headers.forwardedFor, sources.trustedProxies, (hop) => hops.push(hop));
  return {
    code,
    detail,
    facts,
    hops,
    route: match?.route.path ?? null,
    torListDigest,
    keyLookup,
    rules: facts === null ? [] : explainRules(facts, keyLookup?.credential),
  };
}

/**
 * Stand-ins for the dependencies that hold the state of a running gateway. They count nothing, and report neither an
 * overload nor a log problem.
 */
const neutralState = {
  ...{ fingerprints: new KeyFingerprints(null), containsKey, traces: null, throttle: null, merchantRate: null },
  ...{ requiredLog: { problem: () => null }, overload: { problem: () => null } },
};

async function decisionOn(
  request: RequestData,
  found: Findings,
  sources: DecisionSources,
): Promise<{ readonly code: Outcome; readonly detail: string | null }> {
  try {
    const clock = { now: () => request.receivedAt };
    const denial = await runSteps(request, found, { callerIsGone: false }, { ...sources, ...neutralState, clock });
    if (denial === null) return { code: 'accepted', detail: null };
    return { code: denial, detail: found.facts && reasonOf(denial, found.facts, found.credential, timeText) };
  } catch (error) {
    if (error instanceof GatewayError) return { code: error.code, detail: error.message };
    throw error;
  }
}

/**
 * Looks up the key even if an earlier rule denies the request, because the explanation includes the rules about the
 * key.
 */
async function lookUpKey(
  { headers: { apiKey } }: RequestData,
  found: Findings,
  { keyStore, pepper }: DecisionSources,
): Promise<KeyLookup | null> {
  if (found.keyLookup !== null) return found.keyLookup;
  try {
    return await keyStore.find(lookupIdOf(apiKey[0] ?? '', pepper));
  } catch (error) {
    if (error instanceof KeyStoreUnavailable) return null;
    throw error;
  }
}
