import type { ApiDescription, DescribedRoute } from '../rest/openapi/describe-routes.js';

const unclear =
  'What was not answered with success may have been done all the same: look (GET /events) before it is tried again';

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
  failuresOf,
  headersOf: (route) => (isRead(route) ? [] : [actor]),
  alsoAnswers: (route) =>
    isRead(route)
      ? {}
      : { 202: 'Kept, but not yet in the store of the gateways, or perhaps unknown to a gateway that nobody can name' },
};

function failuresOf(route: DescribedRoute): Record<number, string> {
  const takesBody = route.method !== 'get';
  return {
    400: 'The request cannot be read',
    401: 'The token is missing or wrong',
    404: 'There is no such record',
    409: 'The record is in another state',
    ...(takesBody
      ? { 413: 'The body is too large', 415: 'The body is not application/json, or it is compressed' }
      : {}),
    422: 'Fields cannot be accepted; data.errors names each of them',
    500: 'A failure that nobody foresaw',
    503: isRead(route) ? 'A database is away' : `A database is away. ${unclear}`,
  };
}

function isRead({ method, operation }: DescribedRoute): boolean {
  return method === 'get' || operation.isRead === true;
}
