import { failure } from '../rest/envelope.js';
import type { ApiDescription, DescribedRoute } from '../rest/openapi/describe-routes.js';
import Type from '../typebox/typebox.js';
import { failureCodeEntries, type ServiceFailureCode } from './failure-codes.js';
import { id } from './fields.js';
import { idempotencyKeyParameter } from './idempotency/idempotency-key.js';

const merchantId = { 'x-merchant-id': { type: 'apiKey', in: 'header', name: 'x-merchant-id' } };
const environment = { 'x-merchant-environment': { type: 'apiKey', in: 'header', name: 'x-merchant-environment' } };

const retryAfter = {
  'retry-after': { description: 'Seconds to wait before a retry', schema: { type: 'string' } },
};

const replayed = {
  'idempotency-replayed': {
    description: '"true" if this is the stored response to an earlier request with the same Idempotency-Key',
    schema: { type: 'string', enum: ['true'] },
  },
};

/** The parts of the services' OpenAPI description that all routes share. */
export const servicesDescription: ApiDescription = {
  info: {
    title: 'merchant-gateway services',
    version: '1',
    description: 'Wallets, payouts, transactions and customers of the merchant that the gateway has authenticated.',
  },
  security: { ...merchantId, ...environment },
  failuresOf,
  failureDetails: {
    payoutId: Type.Optional({
      ...id,
      description: 'With reference_taken: the id of the payout that has the reference',
    }),
  },
  failureExamples: examplesOf,
  responseHeaders: ({ method }) => ({
    ...(method === 'post' ? { 201: replayed, 404: replayed, 409: { ...replayed, ...retryAfter }, 422: replayed } : {}),
    503: retryAfter,
  }),
  headersOf: ({ method }) => (method === 'post' ? [idempotencyKeyParameter] : []),
};

function failuresOf({ method, schema }: DescribedRoute): Record<number, string> {
  const takesBody = schema?.body !== undefined;
  const takesId = schema?.params !== undefined;
  const unavailable = 'The database is unavailable';
  const invalid = method === 'get' ? 'Invalid query parameters' : 'Invalid fields, query parameters or JSON';
  // Only a POST reads the Idempotency-Key. A repeated PATCH or DELETE has no further effect, even without a key.
  const [reused, repeat] =
    method === 'post'
      ? [', or the Idempotency-Key was used for another request', 'repeat it with the same Idempotency-Key']
      : ['', 'repeat it'];
  return {
    400: 'Malformed request',
    403: 'The request did not come from the gateway',
    ...(takesId || listsByRecord(schema) ? { 404: 'A record that the request names does not exist' } : {}),
    ...(method === 'post'
      ? { 409: 'The record already exists, or a request with this Idempotency-Key is still being carried out' }
      : {}),
    413: 'The body is too large',
    ...(takesBody ? { 415: 'The body is not application/json, or it is compressed' } : {}),
    422: `${invalid}${reused}; data.errors lists every problem`,
    500: 'Unexpected error',
    503: method === 'get' ? unavailable : `${unavailable}. The request may have taken effect nevertheless: ${repeat}`,
  };
}

const codesOfPosts: readonly ServiceFailureCode[] = ['idempotency_in_progress', 'idempotency_key_reused'];

/** Returns an example body for each failure code that a route can return with this status. */
function examplesOf({ method, operation }: DescribedRoute, status: number) {
  const special = new Set<string>([...(operation.codes ?? []), ...(method === 'post' ? codesOfPosts : [])]);
  const possible = failureCodeEntries.filter(
    ([code, it]) => it.status === status && (it.isSpecial !== true || special.has(code)),
  );
  return Object.fromEntries(
    possible.map(([code, { message, problems, details }]) => [
      code,
      { value: failure(message, problems, code, details) },
    ]),
  );
}

function listsByRecord(schema: DescribedRoute['schema']): boolean {
  const query = schema?.querystring as { properties?: object } | undefined;
  return query?.properties !== undefined && 'up_to' in query.properties;
}
