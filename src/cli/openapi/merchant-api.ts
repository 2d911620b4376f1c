import {
  failureAnswer,
  type DescribedAnswer,
  type DescribedOperation,
  type OpenApi,
} from '../../rest/openapi/describe-routes.js';
import { gatewayFailures, type GatewayFailure } from './gateway-failures.js';

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
