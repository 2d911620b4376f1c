import type { ApiDescription, DescribedRoute } from '../rest/openapi/describe-routes.js';

const unclear = 'The change may have been made nevertheless: check GET /events before a retry';

const actor = {
  name: 'x-actor',
  in: 'header',
  description:
    'The name of the caller for events. It is used only with the shared token (registry.tokenFile), and is not verified',
  schema: { type: 'string', maxLength: 64 },
};

const reason = {
  name: 'x-reason',
  in: 'header',
  description: 'The reason for the request, percent-encoded. It is stored in the event about the request',
  schema: { type: 'string', maxLength: 1800 },
};

/** The OpenAPI description of the admin API. */
export const registryDescription: ApiDescription = {
  info: {
    title: 'merchant-gateway registry',
    version: '1',
    description:
      'Administration of merchants and their API keys. A key is shown only in the response to the request that creates it.',
  },
  security: { token: { type: 'http', scheme: 'bearer' } },
  failuresOf,
  headersOf: (route) => (isRead(route) ? [reason] : [actor, reason]),
  extensionsOf: ({ config: { access } }) => (access === undefined ? {} : { 'x-access': access }),
  otherResponses: (route) =>
    isRead(route)
      ? {}
      : {
          202: "The change is stored in the database, but may not be in force yet. Either the gateways' key store does not have the change yet, or a gateway unknown to the registry may still use the old record",
        },
};

function failuresOf(route: DescribedRoute): Record<number, string> {
  const takesBody = route.method !== 'get';
  return {
    400: 'Malformed request',
    401: 'The token is missing or wrong',
    403: 'The caller lacks the permission that data.permission names, or a web page of another origin sent the request',
    404: 'The record does not exist',
    409: 'The state of the record does not allow this request',
    ...(takesBody
      ? { 413: 'The body is too large', 415: 'The body is not application/json, or it is compressed' }
      : {}),
    421: 'The Host header is not a host of this API',
    422: 'Invalid fields; data.errors lists each of them',
    429: 'Too many failed attempts from this address',
    500: 'An unexpected error',
    503: isRead(route) ? 'A database is unavailable' : `A database is unavailable. ${unclear}`,
  };
}

function isRead({ method, operation }: DescribedRoute): boolean {
  return method === 'get' || operation.isRead === true;
}
