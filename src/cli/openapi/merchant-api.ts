import { failureAnswer, type DescribedOperation, type OpenApi } from '../../rest/openapi/describe-routes.js';
import { gatewayFailures, type GatewayFailure } from './gateway-failures.js';

const description = `Payouts, wallets, transactions and customers of a merchant, over HTTPS with JSON bodies.

Every answer is the envelope \`success\`, \`message\`, \`data\`; treat one without \`"success":true\` as failed, and read its
\`message\`. Amounts are in minor units: 250000 is 2,500.00 NGN. New fields may appear in answers: ignore those that you do
not know. Send every creating POST with an \`Idempotency-Key\`: then it may be sent again after a 5xx or a broken connection.`;

/** Of the services alone: behind the gateway a merchant meets its own refusals in their place. */
const seenByGatewayAlone = '403';

/** No operation has a method that is not allowed. */
const seenWithoutOperation = 405;

/**
 * The merchant API as a whole, in OpenAPI 3.1: the operations of the services as they are seen through the gateway, and
 * what the gateway answers itself.
 */
export function merchantApi(services: OpenApi, basePath: string): object {
  const failures = gatewayFailures();
  const responses = Object.fromEntries(
    [...failures].map(([status, failure]) => [`Gateway${status}`, answerOf(failure)] as const),
  );
  const { schemas } = services.components;
  return {
    openapi: services.openapi,
    info: { title: 'Merchant Payments API', version: '1', description },
    servers: [{ url: `https://{host}${basePath}`, variables: { host: { default: 'localhost:8443' } } }],
    security: [{ apiKey: [] }],
    paths: Object.fromEntries(
      Object.entries(services.paths).map(([path, methods]) => [
        path,
        Object.fromEntries(
          Object.entries(methods).map(([method, operation]) => [method, throughGateway(operation, failures)]),
        ),
      ]),
    ),
    components: {
      securitySchemes: {
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key', description: 'svc_live_… or svc_test_…' },
      },
      schemas,
      responses,
    },
  };
}

function throughGateway(
  operation: DescribedOperation,
  failures: ReadonlyMap<number, GatewayFailure>,
): DescribedOperation {
  const responses: Record<string, object> = { ...operation.responses };
  Reflect.deleteProperty(responses, seenByGatewayAlone);
  for (const [status, failure] of failures) {
    if (status === seenWithoutOperation) continue;
    const own = responses[status];
    responses[status] =
      own === undefined ? { $ref: `#/components/responses/Gateway${status}` } : failureAnswer(both(own, failure));
  }
  return { ...operation, responses };
}

function both(own: object, { description }: GatewayFailure): string {
  return `${'description' in own ? String(own.description) : ''}. ${description}`;
}

function answerOf({ description, headers, examples }: GatewayFailure): object {
  const { content } = failureAnswer(description);
  return { description, headers, content: { 'application/json': { ...content['application/json'], examples } } };
}
