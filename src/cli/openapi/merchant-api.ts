import { denialFailure, errorFailure, type Failure } from '../../edge/response/replies.js';
import { type GatewayErrorCode, gatewayErrors } from '../../policy/gateway-errors.js';
import { denials } from '../../policy/decision-table.js';
import {
  type DescribedResponse,
  type DescribedOperation,
  failureResponse,
  type OpenApi,
} from '../../rest/openapi/describe-routes.js';
import { ownOperations, ownSchemas } from './own-operations.js';

const description = `Payouts, wallets, transactions and customers of a merchant, over HTTPS with JSON bodies.

Every response except this document is a JSON object (the envelope) with \`success\`, \`message\` and \`data\`. Treat a response without \`"success":true\` as
failed, and read its \`message\`. Amounts are in minor units: 250000 is 2,500.00 NGN. Responses may get new fields:
ignore unknown fields. Send an \`Idempotency-Key\` with every POST that creates something. After a 5xx or a
broken connection, you can then safely repeat the POST with the same \`Idempotency-Key\`.
If a service reports a failure, the response has a stable \`data.code\` for programs. If the gateway itself reports a
failure, \`data\` is null.
A method that a path does not support gets 405, with the header \`allow\`.`;

/** Status that merchants never receive from a service. Services send it only if a request bypasses the gateway. */
const gatewayOnlyStatus = '403';

/**
 * Status 405 (method not allowed). The description omits this status: each described operation has a method that its
 * path supports, so no operation returns 405.
 */
const seenWithoutOperation = 405;

const license = { name: 'Apache License 2.0', identifier: 'Apache-2.0' };

/**
 * Descriptions of the OpenAPI tags. The tag of a service operation is the last part of its path that is not a
 * parameter. The operations of the gateway itself have the tag `gateway`.
 */
const tags: Readonly<Record<string, string>> = {
  transactions: 'Movements of money in the wallets',
  payouts: 'Payouts from wallets, and their status',
  wallets: 'Balances of the merchant, by currency',
  customers: 'Customers of the merchant',
  gateway: 'Requests to which the gateway itself responds',
};

/**
 * Statuses that the gateway's own operations never return. These operations need neither a permission (403) nor a
 * service (502, 504), and their paths always exist (404).
 */
const notOfOwnOperations: ReadonlySet<number> = new Set([403, 404, 502, 504]);

/** The OpenAPI description of the merchant API. */
export interface MerchantApi {
  readonly servers: readonly { readonly url: string }[];
  readonly tags: readonly { readonly name: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, { readonly tags: readonly string[] }>>>>;
}

/** Responses that several operations share, by their names in the OpenAPI components. */
type SharedResponses = Map<string, object>;

/**
 * Builds the OpenAPI 3.1 description of the complete merchant API. It contains the operations of the services as seen
 * through the gateway, and the gateway's own operations and responses.
 */
export function merchantApi(services: OpenApi): MerchantApi {
  const failures = gatewayFailures();
  const ownFailures = new Map([...failures].filter(([status]) => !notOfOwnOperations.has(status)));
  const shared: SharedResponses = new Map();
  const describeAll = (paths: OpenApi['paths'], failures: ReadonlyMap<number, GatewayFailure>): MerchantApi['paths'] =>
    Object.fromEntries(
      Object.entries(paths).map(([path, methods]) => [
        path,
        Object.fromEntries(
          Object.entries(methods).map(([method, operation]) => [
            method,
            { tags: [tagOf(path)], ...throughGateway(operation, failures, shared) },
          ]),
        ),
      ]),
    );
  const paths = { ...describeAll(services.paths, failures), ...describeAll(ownOperations, ownFailures) };
  const api = {
    openapi: services.openapi,
    info: { title: 'Merchant Payments API', version: '1', description, license },
    servers: [{ url: 'https://{host}/v1', variables: { host: { default: 'localhost:8443' } } }],
    tags: Object.entries(tags).map(([name, description]) => ({ name, description })),
    security: [{ apiKey: [] }],
    paths,
    components: {
      securitySchemes: {
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key', description: 'svc_live_… or svc_test_…' },
      },
      schemas: { ...services.components.schemas, ...ownSchemas },
      responses: Object.fromEntries([...shared].toSorted(([one], [other]) => (one < other ? -1 : 1))),
    },
  };
  return api;
}

function tagOf(path: string): string {
  return path.split('/').findLast((part) => !part.startsWith('{')) ?? '';
}

function throughGateway(
  operation: DescribedOperation,
  failures: ReadonlyMap<number, GatewayFailure>,
  shared: SharedResponses,
): object {
  const ofService = { ...operation.responses };
  Reflect.deleteProperty(ofService, gatewayOnlyStatus);
  const responses: Record<string, object> = { ...ofService };
  for (const [status, failure] of failures) {
    if (status !== seenWithoutOperation) {
      responses[status] = referenceTo(`Failure${status}`, responseOf(failure, ofService[status]), shared);
    }
  }
  return { ...operation, responses };
}

/**
 * Adds a response to the shared responses if it is missing there, and returns a reference to it. If a different shared
 * response already has this name, appends a number to the name of the added response.
 */
function referenceTo(name: string, response: object, shared: SharedResponses): { readonly $ref: string } {
  for (let number = 1; ; number += 1) {
    const tried = number === 1 ? name : `${name}-${number}`;
    const there = shared.get(tried);
    if (there === undefined) shared.set(tried, response);
    if (there === undefined || JSON.stringify(there) === JSON.stringify(response)) {
      return { $ref: `#/components/responses/${tried}` };
    }
  }
}

/** Builds the response for a failure of the gateway. If the service has a response of the same status, merges both. */
function responseOf({ description, headers, examples }: GatewayFailure, own?: DescribedResponse): object {
  const text = own === undefined ? description : `${own.description}. ${description}`;
  const ofGateway = Object.entries(examples).map(([code, example]) => [`gateway_${code}`, example] as const);
  const all = { ...own?.content['application/json']?.examples, ...Object.fromEntries(ofGateway) };
  return { ...failureResponse(text, all), headers: { ...own?.headers, ...headers } };
}

/** All failure responses of the gateway with the same status. */
interface GatewayFailure {
  readonly description: string;
  readonly headers: Readonly<Record<string, object>>;
  /** Example bodies of the responses, by error code. */
  readonly examples: Readonly<Record<string, { readonly value: unknown }>>;
}

const text = { type: 'string' };
const describedHeaders: Readonly<Record<string, object>> = {
  'www-authenticate': { description: 'How to authenticate', schema: text },
  'retry-after': { description: 'How many seconds to wait before a retry', schema: text },
  'x-request-id': { description: 'Id of the request, for support', schema: text },
};

/** Returns all failures of the gateway that a merchant can receive, by status, from the gateway's error tables. */
function gatewayFailures(): ReadonlyMap<number, GatewayFailure> {
  const all: [code: string, failure: Failure][] = [
    ...denials.map(({ code }): [string, Failure] => [code, denialFailure(code)]),
    ...Object.keys(gatewayErrors)
      // A client that has closed its connection receives no response.
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
    description: `From the gateway: ${messages.join('; ')}`,
    headers: Object.fromEntries(Object.entries(describedHeaders).filter(([name]) => sent.has(name))),
    examples: Object.fromEntries(bodies.map(([code, value]) => [code, { value }])),
  };
}
