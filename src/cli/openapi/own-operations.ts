import type { ownPaths } from '../../policy/route-paths.js';
import type { DescribedOperation } from '../../rest/openapi/describe-routes.js';
import { byName, exampleOf, namedSchemas, recordSchema } from '../../rest/openapi/json-schema.js';
import Type from '../../typebox/typebox.js';

const moment = Type.String({ format: 'date-time', examples: ['2026-01-31T12:00:00.000Z'] });
const momentOrNull = Type.Union([moment, Type.Null()]);

const whoami = Type.Object(
  {
    merchant: Type.Object({
      id: Type.String({ examples: ['m_01J9ZK3W8Q4T6Y2N5R7B1C0DEF'] }),
      name: Type.String({ examples: ['Shop'] }),
    }),
    key: Type.Object({
      id: Type.String({ examples: ['key_01J9ZK3W8Q4T6Y2N5R7B1C0DEG'] }),
      label: Type.Union([Type.String({ examples: ['checkout'] }), Type.Null()], {
        description: 'null: the key has no label, or the gateway does not know the label',
      }),
      permissions: Type.Array(Type.String({ examples: ['payouts:write'] })),
      expiresAt: Type.Union([...momentOrNull.anyOf], {
        description: 'The gateway refuses the key from this time on. null: the key never expires',
      }),
      graceEndsAt: Type.Union([...momentOrNull.anyOf], {
        description:
          'If the key was reset, the gateway accepts it until this time (the end of the grace period). null: the key was not reset, or the gateway does not know the time',
      }),
    }),
    environment: Type.Enum(['live', 'test']),
    client: Type.Object({
      address: Type.String({
        description: 'The client address that the gateway compares with the IP allowlist and the Tor exit list',
        examples: ['203.0.113.7'],
      }),
      source: Type.Enum(['peer', 'x-forwarded-for', 'proxy-protocol'], {
        description: 'Where the address comes from: the connection, or a trusted proxy',
      }),
      onIpAllowlist: Type.Union([Type.Literal(true), Type.Null()], {
        description:
          "true: the address is on the merchant's IP allowlist. null: the merchant has no IP allowlist. Requests from an address that is not on the list get 401",
      }),
    }),
    requestId: Type.String({
      description: 'Id of the request. The header x-request-id has the same value',
      examples: ['01J9ZK3W8Q4T6Y2N5R7B1C0DEH'],
    }),
    time: moment,
  },
  { title: 'Whoami' },
);

/** The schemas that the gateway's own operations use, by title. */
export const ownSchemas = namedSchemas([whoami]);

/** The OpenAPI operations of the routes that the gateway itself responds to. */
export const ownOperations: Readonly<Record<(typeof ownPaths)[number], { readonly get: DescribedOperation }>> = {
  '/whoami': operation('The key and the client of the request, as the gateway sees them', 'getWhoami', {
    description: 'Done',
    schema: recordSchema(whoami),
    example: { success: true, message: 'The key is valid', data: exampleOf(whoami) },
  }),
  '/openapi.json': operation('This OpenAPI description, limited to the routes of this gateway', 'getOpenapiJson', {
    description: 'An OpenAPI 3.1 document, without the envelope',
    schema: { type: 'object' },
  }),
};

interface Success {
  readonly description: string;
  readonly schema: object;
  readonly example?: unknown;
}

function operation(summary: string, operationId: string, { description, schema, ...example }: Success) {
  const media: object = { schema: byName(schema), ...example };
  const responses = { 200: { description, content: { 'application/json': media } } };
  return { get: { tags: ['gateway'], summary, operationId, parameters: [], responses } };
}
