import type { ApiDescription, DescribedRoute } from '../rest/openapi/describe-routes.js';

const failures: Readonly<Record<number, string>> = {
  400: 'The request cannot be read',
  401: 'The token is missing or wrong',
  404: 'There is no such record',
  409: 'The record is in another state',
  422: 'Fields cannot be accepted; data.errors names each of them',
  503: 'A database is away',
};

const actor = {
  name: 'x-actor',
  in: 'header',
  description: 'In whose name',
  schema: { type: 'string', maxLength: 64 },
};

/** What the admin API says of itself as a whole. */
export const registryDescription: ApiDescription = {
  info: {
    title: 'merchant-gateway registry',
    version: '1',
    description: 'Administration of merchants and their API keys. A key is shown once, in the answer that makes it.',
  },
  security: { token: { type: 'http', scheme: 'bearer' } },
  failuresOf: () => failures,
  headersOf: (route) => (isRead(route) ? [] : [actor]),
  alsoAnswers: (route) => (isRead(route) ? {} : { 202: 'Kept, but not yet written to the store of the gateways' }),
};

function isRead({ method, operation }: DescribedRoute): boolean {
  return method === 'get' || operation.isRead === true;
}
