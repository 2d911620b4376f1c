import { lookupIdOf } from '../gateway/api-key.js';
import { KeyStoreUnavailable } from '../gateway/ports.js';
import type { KeyLookup } from '../gateway/ports.js';
import { explainRules } from '../policy/explain.js';
import { reasonOf } from '../policy/decision-table.js';
import type { RuleOutcome } from '../policy/explain.js';
import type { RequestFacts } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import { KeyFingerprints } from '../telemetry/key-fingerprint.js';
import { Findings, type Outcome } from './request/exchange.js';
import { runSteps } from './auth/steps.js';
import type { StepSources } from './auth/steps.js';
import { resolveClientAddress } from './request/client-address.js';
import type { Hop } from './request/client-address.js';
import { RequestData } from './request/request-data.js';
import { timeText } from '../telemetry/serialise.js';
import { GatewayError } from './request/errors.js';

/** A hypothetical or past request to explain. */
export interface DescribedRequest {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  /** Names and values, in their original order. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** The peer address of the connection. */
  readonly remote: IpAddress;
  readonly tls: boolean;
  /** Milliseconds since 1970. */
  readonly at: number;
}

/** The inputs of a decision other than the request. Excludes throttles and load, which depend on the current state. */
export type DecisionSources = Omit<
  StepSources,
  'fingerprints' | 'traces' | 'throttle' | 'merchantRate' | 'accessLogProblem' | 'overload'
>;

/** The decision on a described request, and its derivation. */
export interface Explanation {
  readonly code: Outcome;
  /** Why the request is not accepted; null if it is accepted. */
  readonly detail: string | null;
  /** Null if the request is rejected before the facts are known. */
  readonly facts: RequestFacts | null;
  /** How the client address was derived, starting at the remote address. */
  readonly hops: readonly Hop[];
  /** The path of the route; null without a matching route. */
  readonly route: string | null;
  readonly torListDigest: string | null;
  /** The key store's result; null without a well-formed key, or if the store is unavailable. */
  readonly keyLookup: KeyLookup | null;
  /** All rules in order; empty without facts. */
  readonly rules: readonly RuleOutcome[];
}

/** Explains the decision on a described request. Runs the same steps as for every real request. */
export async function explainRequest(described: DescribedRequest, sources: DecisionSources): Promise<Explanation> {
  const { method, target, remote, tls, at } = described;
  const tlsFacts = tls ? { version: undefined, version_protocol: 'tls' as const, cipher: '' } : null;
  const connection = { remote, port: null, mayForward: true, place: null, tls: tlsFacts };
  const request = new RequestData(method, '1.1', target, described.headers.flat(), connection, at);
  const found = new Findings([]);
  const { code, detail } = await decisionOn(request, found, sources);
  const { facts, match, torListDigest } = found;
  const keyLookup = facts === null || facts.keyFormat === 'absent' ? null : await lookUpKey(request, found, sources);
  const isAsked = facts?.keyFormat === 'live' || facts?.keyFormat === 'test';
  const hops: Hop[] = [];
  resolveClientAddress(remote, request.headers.forwardedFor, sources.trustedProxies, (hop) => hops.push(hop));
  return {
    code,
    detail,
    facts,
    hops,
    route: match?.route.path ?? null,
    torListDigest,
    keyLookup: isAsked ? keyLookup : null,
    rules: facts === null ? [] : explainRules(facts, isAsked ? keyLookup?.credential : undefined),
  };
}

/** Neutral inputs for the current state: nothing is counted, and neither load nor a log problem rejects. */
const neutralState = {
  ...{ fingerprints: new KeyFingerprints(null), traces: null, throttle: null, merchantRate: null },
  ...{ accessLogProblem: () => null, overload: () => null },
};

async function decisionOn(
  request: RequestData,
  found: Findings,
  sources: DecisionSources,
): Promise<{ readonly code: Outcome; readonly detail: string | null }> {
  try {
    const denial = await runSteps(request, found, { callerIsGone: false }, { ...sources, ...neutralState });
    if (denial === null) return { code: 'accepted', detail: null };
    return { code: denial, detail: found.facts && reasonOf(denial, found.facts, found.credential, timeText) };
  } catch (error) {
    if (error instanceof GatewayError) return { code: error.code, detail: error.message };
    throw error;
  }
}

/** Looks up the key even if an earlier rule rejects, because the explanation includes the credential rules. */
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
