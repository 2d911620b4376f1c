import { lookupIdOf } from '../gateway/api-key.js';
import { KeyStoreUnavailable } from '../gateway/ports.js';
import type { KeyAnswer } from '../gateway/ports.js';
import { explainRules } from '../policy/explain.js';
import { reasonOf } from '../policy/decision-table.js';
import type { RuleOutcome } from '../policy/explain.js';
import type { RequestFacts } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import { KeyFingerprints } from '../telemetry/key-fingerprint.js';
import { Findings, type Outcome } from './request/exchange.js';
import { takeSteps } from './auth/steps.js';
import type { StepSources } from './auth/steps.js';
import { resolveClientAddress } from './request/client-address.js';
import type { Hop } from './request/client-address.js';
import { RequestData } from './request/request-data.js';
import { timeText } from '../telemetry/serialise.js';
import { GatewayError } from './request/errors.js';

/** A request in words: nobody has sent it, or it was sent long ago. */
export interface DescribedRequest {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  /** Names and values, in their order. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** The remote address: whoever opened the connection. */
  readonly remote: IpAddress;
  readonly tls: boolean;
  /** Milliseconds since 1970. */
  readonly at: number;
}

/** What decides besides the request; what slows callers down is of the moment, and decides nothing here. */
export type DecisionSources = Omit<
  StepSources,
  'fingerprints' | 'traces' | 'throttle' | 'merchantRate' | 'accessLogProblem' | 'overload'
>;

/** What would be decided, and how. */
export interface Explanation {
  readonly code: Outcome;
  /** Why it is not accepted. */
  readonly detail: string | null;
  /** Null where the request is refused before they are known. */
  readonly facts: RequestFacts | null;
  /** How the client address was found, from the remote address on. */
  readonly hops: readonly Hop[];
  /** The path of the route; null: none. */
  readonly route: string | null;
  readonly torListDigest: string | null;
  /** What the key store says of the key; null where there was none to ask about, or it could not be asked. */
  readonly answer: KeyAnswer | null;
  /** Every rule in order; empty where there are no facts. */
  readonly rules: readonly RuleOutcome[];
}

/** Says what the gateway would decide about a request, by the very steps that every request takes. */
export async function explainRequest(described: DescribedRequest, sources: DecisionSources): Promise<Explanation> {
  const { method, target, remote, tls, at } = described;
  const tlsFacts = tls ? { version: undefined, version_protocol: 'tls' as const, cipher: '' } : null;
  const connection = { remote, port: null, mayForward: true, place: null, tls: tlsFacts };
  const request = new RequestData(method, '1.1', target, described.headers.flat(), connection, at);
  const found = new Findings([]);
  const { code, detail } = await decisionOn(request, found, sources);
  const { facts, match, torListDigest } = found;
  const answer = facts === null || facts.keyFormat === 'absent' ? null : await answerFor(request, found, sources);
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
    answer: isAsked ? answer : null,
    rules: facts === null ? [] : explainRules(facts, isAsked ? answer?.credential : undefined),
  };
}

/** What decides without a moment: nothing is counted, and no load and no log refuse. */
const atNoMoment = {
  ...{ fingerprints: new KeyFingerprints(null), traces: null, throttle: null, merchantRate: null },
  ...{ accessLogProblem: () => null, overload: () => null },
};

async function decisionOn(
  request: RequestData,
  found: Findings,
  sources: DecisionSources,
): Promise<{ readonly code: Outcome; readonly detail: string | null }> {
  try {
    const denial = await takeSteps(request, found, { callerIsGone: false }, { ...sources, ...atNoMoment });
    if (denial === null) return { code: 'accepted', detail: null };
    return { code: denial, detail: found.facts && reasonOf(denial, found.facts, found.credential, timeText) };
  } catch (error) {
    if (error instanceof GatewayError) return { code: error.code, detail: error.message };
    throw error;
  }
}

/** The rules about the credential are shown also where an earlier one refuses, so it is asked for in any case. */
async function answerFor(
  { headers: { apiKey } }: RequestData,
  found: Findings,
  { keyStore, pepper }: DecisionSources,
): Promise<KeyAnswer | null> {
  if (found.answer !== null) return found.answer;
  try {
    return await keyStore.find(lookupIdOf(apiKey[0] ?? '', pepper));
  } catch (error) {
    if (error instanceof KeyStoreUnavailable) return null;
    throw error;
  }
}
