import Type from '../../typebox/typebox.js';
import { optionalFile, section } from './option.js';

const name = {
  pattern: '^[a-z][a-z0-9-]{0,63}$',
  expects: 'a name of at most 64 lower-case letters, digits and hyphens, beginning with a letter',
};

const upstream = section(
  {
    url: Type.String({
      pattern: '^https?://[^/?#@\\s\\\\\\u0000-\\u001f\\u007f]+$',
      description: 'URL of the service: only scheme, host and port.',
      expects: 'an http:// or https:// URL of only scheme, host and port, without a trailing slash',
      examples: ['http://127.0.0.1:7080'],
    }),
    timeoutSeconds: Type.Integer({
      minimum: 1,
      maximum: 600,
      default: 30,
      description:
        'How long the gateway waits for the response of the service to begin, or to continue. After that: 504, or a closed connection if the response has begun.',
    }),
    maxInFlight: Type.Integer({
      minimum: 1,
      maximum: 65_536,
      default: 256,
      description: 'Maximum number of concurrent requests to the service, for each gateway process. Above it: 503.',
    }),
    boundIdle: Type.Integer({
      minimum: 0,
      maximum: 65_536,
      default: 1024,
      description:
        'Maximum number of idle connections to the service that are each reserved for one merchant. These connections do not count toward maxInFlight. A connection that has carried a request body is reserved, because a service that did not read the body could parse it as the next request. At the limit, the least recently used reserved connection is closed.',
    }),
    readsBodies: Type.Boolean({
      default: false,
      description:
        'Whether the service reads every request body to its end, even when it responds early. If true, merchants ' +
        'share connections. The backing services of this product read every body.',
    }),
    caFile: optionalFile(
      'PEM file of the CA of the https upstream. null: the CAs that Node includes, and those in the ' +
        'file of NODE_EXTRA_CA_CERTS. Certificates are always verified.',
    ),
  },
  { description: 'An upstream under a name of your choice.' },
);

const local = { url: 'http://127.0.0.1:7080' };

/** Options of the upstream services, keyed by name. */
export const upstreams = Type.Record(Type.String({ pattern: name.pattern }), upstream, {
  additionalProperties: false,
  default: { transactions: local, payouts: local, customers: local },
  description:
    'The upstream services, by the name that routes refer to. If you set this option, no default upstream remains.',
  expects:
    'names of at most 64 lower-case letters, digits and hyphens, beginning with a letter, each with the options of an upstream',
});

const route = section(
  {
    path: Type.String({
      pattern: '^(?:/(?!\\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)+$',
      maxLength: 1024,
      description: 'Path below basePath. The route also covers every path below it.',
      expects: 'a path like /payouts, without a trailing slash, whose segments have only letters, digits and . _ ~ -',
      examples: ['/payouts'],
    }),
    upstream: Type.String({
      ...name,
      description: 'Name of the upstream that handles the requests.',
      examples: ['payouts'],
    }),
    resource: Type.String({
      ...name,
      description: 'Name of the resource in permissions, as in payouts:write.',
      examples: ['payouts'],
    }),
  },
  { description: '' },
);

/** Options of the routes from paths to upstreams. */
export const routes = Type.Array(route, {
  default: [
    { path: '/transactions', upstream: 'transactions', resource: 'transactions' },
    { path: '/payouts', upstream: 'payouts', resource: 'payouts' },
    { path: '/dev/payouts', upstream: 'payouts', resource: 'payouts' },
    { path: '/dev/wallets', upstream: 'payouts', resource: 'wallets' },
    { path: '/dev/transactions', upstream: 'transactions', resource: 'transactions' },
    { path: '/dev', upstream: 'customers', resource: 'customers' },
  ],
  maxItems: 1000,
  description:
    'Routes from paths to upstreams; the longest matching path wins. The upstream gets the path without basePath. A ' +
    'path that only resembles a route, such as /Payouts, /payouts.json or /%70ayouts, gets 404. The gateway itself responds to /whoami and /openapi.json, unless a route has exactly this path. ' +
    'A given list replaces the whole default list.',
  expects: 'a list of routes',
});
