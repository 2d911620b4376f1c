import { denialFailure, errorFailure, type Failure } from '../../http/envelope.js';
import { gatewayErrors, type GatewayErrorCode } from '../../http/errors.js';
import { denials } from '../../policy/denials.js';

/** What the gateway answers itself with one status. */
export interface GatewayFailure {
  readonly description: string;
  readonly headers: Readonly<Record<string, object>>;
  /** The envelopes, by code. */
  readonly examples: Readonly<Record<string, { readonly value: unknown }>>;
}

const text = { type: 'string' };
const describedHeaders: Readonly<Record<string, object>> = {
  'www-authenticate': { description: 'How to identify oneself', schema: text },
  'retry-after': { description: 'Seconds after which to try again', schema: text },
  'x-request-id': { description: 'What to quote to support', schema: text },
};

/** Whatever a merchant can get of the gateway itself, by status, from the tables by which it answers. */
export function gatewayFailures(): ReadonlyMap<number, GatewayFailure> {
  const all: [code: string, failure: Failure][] = [
    ...denials.map(({ code }): [string, Failure] => [code, denialFailure(code)]),
    ...Object.keys(gatewayErrors)
      // Whoever hung up sees nothing.
      .filter((code) => code !== 'client_closed')
      .map((code): [string, Failure] => [code, errorFailure(code as GatewayErrorCode)]),
  ];
  const statuses = [...new Set(all.map(([, { status }]) => status))].toSorted((one, other) => one - other);
  return new Map(statuses.map((status) => [status, describe(all.filter(([, failure]) => failure.status === status))]));
}

function describe(failures: readonly [code: string, failure: Failure][]): GatewayFailure {
  const bodies = failures.map(([code, { body }]) => [code, JSON.parse(body) as { message: string }] as const);
  const messages = [...new Set(bodies.map(([, { message }]) => message))];
  const sent = new Set(['x-request-id', ...failures.flatMap(([, { headers }]) => Object.keys(headers))]);
  return {
    description: `Of the gateway: ${messages.join('; ')}`,
    headers: Object.fromEntries(Object.entries(describedHeaders).filter(([name]) => sent.has(name))),
    examples: Object.fromEntries(bodies.map(([code, value]) => [code, { value }])),
  };
}
