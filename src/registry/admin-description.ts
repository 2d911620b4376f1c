import type { ApiDescription, DescribedRoute } from '../rest/openapi/describe-routes.js';

const unclear = 'The change may have been made nevertheless: check GET /events before a retry';

const actor = {
  name: 'x-actor',
  in: 'header',
  description:
    'The name of the person or program that uses the shared token (registry.tokenFile). The registry stores the name in events as `claimed`, but does not verify it. With other tokens, the registry ignores the header',
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
          202: 'The change is stored in the database, but some gateways may not apply it yet: one could, for example, still accept a revoked key. Either the change is not in the key store yet, or the registry cannot identify every gateway. See data.propagation',
        },
};

function failuresOf(route: DescribedRoute): Record<number, string> {
  const takesBody = route.method !== 'get';
  return {
    400: 'Malformed request',
    401: 'The token is missing or wrong',
    403: 'The caller is not allowed to make this request; data.code has the reason. If data.code is permission_missing, data.permission names the missing permission',
    404: 'The record does not exist',
    409: 'The state of the record does not allow this request, a maximum is reached, or another administrator must approve the change first (approval_required)',
    ...(takesBody
      ? { 413: 'The body is too large', 415: 'The body is not application/json, or it is compressed' }
      : {}),
    421: 'The Host header is not a host of this API',
    422: 'Invalid fields; data.errors lists each of them',
    429: isRead(route)
      ? 'Too many failed attempts from this address'
      : 'Too many failed attempts from this address, or too many changes by members of one merchant (too_many_changes)',
    500: 'An unexpected error',
    503: isRead(route) ? 'A database is unavailable' : `A database is unavailable. ${unclear}`,
  };
}

function isRead({ method, operation }: DescribedRoute): boolean {
  return method === 'get' || operation.isRead === true;
}
