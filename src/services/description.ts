import { failure } from '../rest/envelope.js';
import type { ApiDescription, DescribedRoute } from '../rest/openapi/describe-routes.js';
import Type from '../typebox/typebox.js';
import { failureCodeEntries, type ServiceFailureCode } from './failure-codes.js';
import { id } from './fields.js';
import { idempotencyKeyParameter } from './idempotency/idempotency-key.js';

const merchantId = { 'x-merchant-id': { type: 'apiKey', in: 'header', name: 'x-merchant-id' } };
const environment = { 'x-merchant-environment': { type: 'apiKey', in: 'header', name: 'x-merchant-environment' } };

const retryAfter = {
  'retry-after': { description: 'Seconds after which to try again', schema: { type: 'string' } },
};

const replayed = {
  'idempotency-replayed': {
    description: '"true" where the answer was given before, under the same Idempotency-Key',
    schema: { type: 'string', enum: ['true'] },
  },
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
  failureDetails: {
    payoutId: Type.Optional({ ...id, description: 'Of the payout that has the reference, beside reference_taken' }),
  },
  failureExamples: examplesOf,
  answerHeaders: ({ method }) => ({
    ...(method === 'post' ? { 201: replayed, 404: replayed, 409: { ...replayed, ...retryAfter }, 422: replayed } : {}),
    503: retryAfter,
  }),
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

const codesOfPosts: readonly ServiceFailureCode[] = ['idempotency_in_progress', 'idempotency_key_reused'];

/** The envelopes of the failures of one status that a route may have, by their codes. */
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
