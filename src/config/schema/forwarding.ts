import Type from '../../typebox/typebox.js';
import { optionalFile, section } from './option.js';

const name = { pattern: '^[a-z][a-z0-9-]{0,63}$', expects: 'a name of small letters, digits and hyphens' };

const upstream = section(
  {
    url: Type.String({
      pattern: '^https?://[^/?#@\\s\\\\\\u0000-\\u001f\\u007f]+$',
      description: 'Where the service listens: scheme, host and port, nothing else.',
      expects: 'an http:// or https:// URL of scheme, host and port alone, without a slash at its end',
      examples: ['http://127.0.0.1:7080'],
    }),
    timeoutSeconds: Type.Integer({
      minimum: 1,
      maximum: 600,
      default: 30,
      description: 'How long the service may take to answer. After that: 504.',
    }),
    maxInFlight: Type.Integer({
      minimum: 1,
      maximum: 65_536,
      default: 256,
      description: 'Requests that the service gets at the same time. Further ones: 503.',
    }),
    boundIdle: Type.Integer({
      minimum: 0,
      maximum: 65_536,
      default: 1024,
      description:
        'Idle connections that stay open for one merchant each, because they have carried a request body: a service ' +
        'that did not read it would take it for the beginning of the next request. They come on top of maxInFlight. ' +
        'The least recently used one closes first.',
    }),
    readsBodies: Type.Boolean({
      default: false,
      description:
        'Whether the service is known to read every request body to its end, also where it responds early. Then ' +
        'merchants share connections. The backing services of this product do.',
    }),
    caFile: optionalFile(
      "PEM file of the authority that signed an https upstream's certificate. null: those that the system trusts. " +
        'Certificates are always verified.',
    ),
  },
  { description: 'A name of your choice.' },
);

const local = { url: 'http://127.0.0.1:7080' };

/** The services behind the gateway, by name. */
export const upstreams = Type.Record(Type.String({ pattern: name.pattern }), upstream, {
  additionalProperties: false,
  default: { transactions: local, payouts: local, customers: local },
  description: 'The services behind the gateway, by a name for use in the routes. Given at all, it is the whole list.',
  expects: 'names of small letters, digits and hyphens, each with the options of an upstream',
});

const route = section(
  {
    path: Type.String({
      pattern: '^(?:/(?!\\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)+$',
      maxLength: 1024,
      description: 'Path below basePath, not that itself; it covers all that is below it.',
      expects: 'a path like /payouts: segments of letters, digits and . _ ~ -, without a slash at its end',
      examples: ['/payouts'],
    }),
    upstream: Type.String({
      ...name,
      description: 'Name of the upstream that answers.',
      examples: ['payouts'],
    }),
    resource: Type.String({
      ...name,
      description: 'What permissions call it, as in payouts:write.',
      examples: ['payouts'],
    }),
  },
  { description: '' },
);

/** Which path goes to which upstream. */
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
    'Which path goes to which upstream; the longest path wins. The upstream gets the path without basePath. ' +
    'As far down as routes are configured, other spellings of a segment (Payouts, payouts.json) and segments with % or ; ' +
    'are 404. Given at all, it is the whole list.',
  expects: 'a list of routes',
});
