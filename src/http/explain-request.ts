import { Socket } from 'node:net';
import { KeyStoreUnavailable } from '../gateway/ports.js';
import type { KeyAnswer } from '../gateway/ports.js';
import { explainRules } from '../policy/explain.js';
import type { RuleOutcome } from '../policy/explain.js';
import type { RequestFacts } from '../policy/facts.js';
import type { IpAddress } from '../policy/ip-address.js';
import { lookupIdOf } from '../gateway/api-key.js';
import { IncomingMessage, ServerResponse } from '../node/http.js';
import { KeyFingerprints } from '../telemetry/key-fingerprint.js';
import { judge } from './authentication.js';
import type { AuthenticationHookOptions } from './authentication.js';
import { resolveClientAddress } from './client-address.js';
import type { Hop } from './client-address.js';
import { setConnectionFacts } from './connection-facts.js';
import { GatewayError } from './errors.js';
import { Exchange } from './exchange.js';
import type { Outcome } from './exchange.js';
import { believedProxies } from './request-facts.js';
import { readDecisiveHeaders } from './request-headers.js';

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
  AuthenticationHookOptions,
  'fingerprints' | 'traces' | 'throttle' | 'merchantRate' | 'accessLogProblem' | 'overload'
>;

/** What would be decided, and how. */
export interface Explanation {
  readonly code: Outcome;
  /** Of a request that fails otherwise than by a rule: why. */
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

/** Says what the gateway would decide about a request, by the very function that decides about requests. */
export async function explainRequest(described: DescribedRequest, sources: DecisionSources): Promise<Explanation> {
  const exchange = exchangeOf(described);
  const { code, detail } = await decisionOn(exchange, sources);
  const { facts, match, torListDigest } = exchange;
  const headers = readDecisiveHeaders(exchange.rawHeaders);
  const [key = ''] = headers.apiKey;
  const answer = facts === null || facts.keyFormat === 'absent' ? null : await answerFor(key, exchange, sources);
  const isAsked = facts?.keyFormat === 'live' || facts?.keyFormat === 'test';
  const hops: Hop[] = [];
  const believed = believedProxies(exchange, sources.trustedProxies);
  resolveClientAddress(described.remote, headers.forwardedFor, believed, (hop) => hops.push(hop));
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

async function decisionOn(
  exchange: Exchange,
  sources: DecisionSources,
): Promise<{ readonly code: Outcome; readonly detail: string | null }> {
  try {
    const denial = await judge(exchange, {
      ...sources,
      ...{ fingerprints: new KeyFingerprints(null), traces: null, throttle: null, merchantRate: null },
      ...{ accessLogProblem: () => null, overload: () => null },
    });
    return { code: denial ?? 'accepted', detail: null };
  } catch (error) {
    if (error instanceof GatewayError) return { code: error.code, detail: error.message };
    throw error;
  }
}

/** The rules about the credential are shown also where an earlier one refuses, so it is asked for in any case. */
async function answerFor(key: string, exchange: Exchange, sources: DecisionSources): Promise<KeyAnswer | null> {
  if (exchange.answer !== null) return exchange.answer;
  try {
    return await sources.keyStore.find(lookupIdOf(key, sources.pepper));
  } catch (error) {
    if (error instanceof KeyStoreUnavailable) return null;
    throw error;
  }
}

/** A request as Node would have handed it over. */
function exchangeOf({ method, target, headers, remote, tls, at }: DescribedRequest): Exchange {
  const socket = new Socket();
  setConnectionFacts(socket, {
    remote,
    mayForward: true,
    place: null,
    tls: tls ? { version: null, cipher: '' } : null,
  });
  const request = new IncomingMessage(socket);
  request.method = method;
  request.url = target;
  request.httpVersion = '1.1';
  request.rawHeaders = headers.flat();
  return new Exchange(request, new ServerResponse(request), target, at);
}
