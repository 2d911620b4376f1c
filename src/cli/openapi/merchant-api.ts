import { denialFailure, errorFailure, type Failure } from '../../edge/response/replies.js';
import { type GatewayErrorCode, gatewayErrors } from '../../edge/request/errors.js';
import { denials } from '../../policy/decision-table.js';
import {
  type DescribedAnswer,
  type DescribedOperation,
  failureAnswer,
  type OpenApi,
} from '../../rest/openapi/describe-routes.js';

const description = `Payouts, wallets, transactions and customers of a merchant, over HTTPS with JSON bodies.

Every answer is the envelope \`success\`, \`message\`, \`data\`; treat one without \`"success":true\` as failed, and read its
\`message\`. Amounts are in minor units: 250000 is 2,500.00 NGN. New fields may appear in answers: ignore those that you do
not know. Send every creating POST with an \`Idempotency-Key\`: then it may be sent again after a 5xx or a broken connection.
A failure of the services has a stable \`data.code\` for programs; \`data\` of the gateway's own failures is null.
A method that a path does not take is 405, with \`allow\`.`;

/** Of the services alone: behind the gateway a merchant meets its own refusals in their place. */
const seenByGatewayAlone = '403';

/** No operation has a method that is not allowed. */
const seenWithoutOperation = 405;

const license = { name: 'Apache License 2.0', identifier: 'Apache-2.0' };

/** What operations are about, by the last part of their paths that is no parameter. */
const tags: Readonly<Record<string, string>> = {
  transactions: 'The movements on the wallets',
  payouts: 'Money that leaves a wallet, and what has become of it',
  wallets: 'The money of the merchant, by currency',
  customers: 'The customers of the merchant',
};

/** The answers that operations share, by their names in the components. */
type SharedAnswers = Map<string, object>;

/**
 * The merchant API as a whole, in OpenAPI 3.1: the operations of the services as they are seen through the gateway, and
 * what the gateway answers itself.
 */
export function merchantApi(services: OpenApi, basePath: string): object {
  const failures = gatewayFailures();
  const shared: SharedAnswers = new Map();
  const paths = Object.fromEntries(
    Object.entries(services.paths).map(([path, methods]) => [
      path,
      Object.fromEntries(
        Object.entries(methods).map(([method, operation]) => [
          method,
          { tags: [tagOf(path)], ...throughGateway(operation, failures, shared) },
        ]),
      ),
    ]),
  );
  return {
    openapi: services.openapi,
    info: { title: 'Merchant Payments API', version: '1', description, license },
    servers: [{ url: `https://{host}${basePath}`, variables: { host: { default: 'localhost:8443' } } }],
    tags: Object.entries(tags).map(([name, description]) => ({ name, description })),
    security: [{ apiKey: [] }],
    paths,
    components: {
      securitySchemes: {
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key', description: 'svc_live_… or svc_test_…' },
      },
      schemas: services.components.schemas,
      responses: Object.fromEntries([...shared].toSorted(([one], [other]) => (one < other ? -1 : 1))),
    },
  };
}

function tagOf(path: string): string {
  return path.split('/').findLast((part) => !part.startsWith('{')) ?? '';
}

function throughGateway(
  operation: DescribedOperation,
  failures: ReadonlyMap<number, GatewayFailure>,
  shared: SharedAnswers,
): object {
  const responses: Record<string, object> = { ...operation.responses };
  Reflect.deleteProperty(responses, seenByGatewayAlone);
  for (const [status, failure] of failures) {
    if (status !== seenWithoutOperation) {
      responses[status] = referenceTo(`Failure${status}`, answerOf(failure, operation.responses[status]), shared);
    }
  }
  return { ...operation, responses };
}

/** Puts an answer among the shared ones, unless it is there; two of one status have a number each. */
function referenceTo(name: string, answer: object, shared: SharedAnswers): { readonly $ref: string } {
  for (let number = 1; ; number += 1) {
    const tried = number === 1 ? name : `${name}-${number}`;
    const there = shared.get(tried);
    if (there === undefined) shared.set(tried, answer);
    if (there === undefined || JSON.stringify(there) === JSON.stringify(answer)) {
      return { $ref: `#/components/responses/${tried}` };
    }
  }
}

/** A failure of the gateway, together with that of the services of the same status. */
function answerOf({ description, headers, examples }: GatewayFailure, own?: DescribedAnswer): object {
  const text = own === undefined ? description : `${own.description}. ${description}`;
  const ofGateway = Object.entries(examples).map(([code, example]) => [`gateway_${code}`, example] as const);
  const all = { ...own?.content['application/json'].examples, ...Object.fromEntries(ofGateway) };
  return { ...failureAnswer(text, all), headers: { ...own?.headers, ...headers } };
}

/** What the gateway answers itself with one status. */
interface GatewayFailure {
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
function gatewayFailures(): ReadonlyMap<number, GatewayFailure> {
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
