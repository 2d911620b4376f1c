import type { ApiDescription, DescribedRoute } from '../rest/openapi/describe-routes.js';
import { idempotencyKeyParameter } from './idempotency/idempotency-key.js';

const merchantId = { 'x-merchant-id': { type: 'apiKey', in: 'header', name: 'x-merchant-id' } };
const environment = { 'x-merchant-environment': { type: 'apiKey', in: 'header', name: 'x-merchant-environment' } };

const retryAfter = {
  'retry-after': { description: 'Seconds after which to try again', schema: { type: 'string' } },
};

/** What the services say of themselves as a whole. */
export const servicesDescription: ApiDescription = {
  info: {
    title: 'merchant-gateway services',
    version: '1',
    description: 'Wallets, payouts, transactions and customers of the merchant in whose name the gateway asks.',
  },
  security: { ...merchantId, ...environment },
  failuresOf,
  answerHeaders: {
    201: {
      'idempotency-replayed': {
        description: '"true" where the answer was given before, under the same Idempotency-Key',
        schema: { type: 'string', enum: ['true'] },
      },
    },
    409: retryAfter,
    503: retryAfter,
  },
  headersOf: ({ method }) => (method === 'post' ? [idempotencyKeyParameter] : []),
};

function failuresOf({ method, schema }: DescribedRoute): Record<number, string> {
  const takesBody = schema?.body !== undefined;
  const takesId = schema?.params !== undefined;
  return {
    400: 'The request cannot be read',
    403: 'The request did not come from the gateway',
    ...(takesId || listsByRecord(schema) ? { 404: 'There is no such record' } : {}),
    ...(method === 'post'
      ? { 409: 'The record exists, or a request with this Idempotency-Key is being carried out' }
      : {}),
    413: 'The body is too large',
    ...(takesBody ? { 415: 'The body is not application/json, or it is compressed' } : {}),
    422: 'Fields, or the body as JSON, cannot be accepted, or the Idempotency-Key was used for another request; data.errors names each of them',
    500: 'A failure that nobody foresaw',
    503: 'The database is away. What was not answered with success may have been done all the same: repeat it under its Idempotency-Key',
  };
}

function listsByRecord(schema: DescribedRoute['schema']): boolean {
  const query = schema?.querystring as { properties?: object } | undefined;
  return query?.properties !== undefined && 'up_to' in query.properties;
}
