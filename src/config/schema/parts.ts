import Type from '../../typebox/typebox.js';
import { address, line, nullable, optionalFile, requiredFile, section } from './option.js';
import { databaseUrl } from './registry.js';

/** Options of the connection pool to PostgreSQL. */
const pool = {
  maxConnections: Type.Integer({
    minimum: 1,
    maximum: 1000,
    default: 10,
    description: 'Maximum number of connections to PostgreSQL per process. SQLite uses one.',
  }),
  connectTimeoutSeconds: Type.Integer({
    minimum: 1,
    maximum: 60,
    default: 5,
    description: 'How long a query may wait for a connection to PostgreSQL. After that: 503.',
  }),
  statementTimeoutSeconds: Type.Integer({
    minimum: 1,
    maximum: 600,
    default: 10,
    description:
      'How long a PostgreSQL statement may take, including lock waits. After that: 503. For migrations, the limit is one hour instead.',
  }),
};

/** Options of the backing services. */
export const services = section(
  {
    listen: section(address('127.0.0.1', 7080), { description: 'The listener to which only the gateway connects.' }),
    database: section(
      {
        url: databaseUrl({
          default: 'sqlite:var/services.db',
          description:
            'sqlite:<file>, or postgres://user:password@host:port/database. Do not use the database of the registry or of another program.',
          expects: 'sqlite:<file> or postgres://…',
        }),
        ...pool,
      },
      { description: 'The database of the services.' },
    ),
    operators: section(
      {
        listen: section(
          {
            ...address('127.0.0.1', 7081),
            certFile: optionalFile(
              'PEM file with the certificate, followed by its intermediates. Required unless host is a loopback ' +
                'address. null: plain HTTP.',
            ),
            keyFile: optionalFile("PEM file with the certificate's private key."),
          },
          { description: "The operators' listener. The gateway must not forward requests to it." },
        ),
        tokenFile: optionalFile(
          "File with the shared bearer token of operators, at least 32 characters. null: no shared token. If registryKeys is empty too, the operators' API is off, and wallets cannot be created or credited.",
        ),
        registryKeys: Type.Array(
          line({ expects: 'the path of a file', examples: ['/etc/gateway/registry.pub'], holds: 'path' }),
          {
            default: [],
            maxItems: 2,
            description:
              "PEM files with public keys. List the key that belongs to the private key in registry.servicesToken.keyFile; during a key rotation, list the former and the new key. The operators' API then accepts the administrators of the registry.",
            expects: 'a list of paths of files',
          },
        ),
        trail: nullable(
          section(
            {
              url: Type.String({
                pattern: '^https?://[^?#@\\s\\\\\\u0000-\\u001f\\u007f]+$',
                maxLength: 4096,
                description: 'Address of the admin API. https, except for a loopback address.',
                expects: 'an http:// or https:// URL without a user or a query',
                examples: ['https://registry.example.com'],
              }),
              tokenFile: requiredFile(
                'File with the token of an administrator of the registry who has the role `services`. The file is read for each ' +
                  'request, so a new token applies at once.',
                '/etc/gateway/services-trail-token',
              ),
              caFile: optionalFile(
                'PEM file of the CA of an https address. null: the CAs that Node includes, and those in the file of NODE_EXTRA_CA_CERTS.',
              ),
            },
            { description: '' },
          ),
          {
            description:
              'The registry to which the services report each change by an operator as an event. While the registry is unavailable, the events wait in the database of the services. Required if registryKeys is not empty. null: no events.',
          },
        ),
      },
      {
        description:
          'The API with which operators manage wallets and their money, used by the command "merchant-gateway wallets".',
      },
    ),
    bank: section(
      {
        delaySeconds: Type.Integer({
          minimum: 0,
          maximum: 86_400,
          default: 1,
          description:
            'How long a payout has the status pending. After that, it has the status processing for the same time.',
        }),
        failingAccounts: Type.Array(
          Type.String({
            pattern: '^[A-Za-z0-9+][A-Za-z0-9._@-]{2,63}$',
            expects: 'an account number or a recipient',
            examples: ['0000000000'],
          }),
          {
            default: ['0000000000'],
            maxItems: 1000,
            description:
              'Account numbers and recipients whose payouts the bank rejects. Such a payout fails, and the amount ' +
              'returns to its wallet.',
            expects: 'a list of account numbers and recipients',
          },
        ),
      },
      { description: 'The simulated bank, which completes or rejects payouts.' },
    ),
  },
  { description: 'The backing services: transactions, payouts, wallets and customers.' },
);

/** Options of the assertions (signed JWTs) that name the calling merchant to upstreams. */
export const identity = section(
  {
    signingKeyFile: optionalFile(
      "PEM file with the private key (Ed25519 or P-256) that signs the caller's identity for upstreams " +
        '(x-gateway-assertion). null: no assertions.',
    ),
    publishedKeyFiles: Type.Array(
      line({ expects: 'the path of a file', examples: ['/etc/gateway/next-key.pem'], holds: 'path' }),
      {
        default: [],
        maxItems: 16,
        description:
          'PEM files with further keys, public or private, whose public keys are published to upstreams. During a ' +
          'key rotation, list the next and the previous key.',
        expects: 'a list of paths of files',
      },
    ),
    issuer: line({
      default: 'merchant-gateway',
      description: 'The issuer (claim `iss`) of each assertion.',
      expects: 'a name or URL',
    }),
    audience: nullable(line({ expects: 'a name or URL' }), {
      description:
        'A second audience in the claim `aud` of each assertion, besides the name of the upstream. Set it to merchant-gateway if services of the previous release verify assertions, or to a name that all your services require. null: only the name of the upstream.',
    }),
    lifetimeSeconds: Type.Integer({
      minimum: 10,
      maximum: 3600,
      default: 60,
      description: 'How long an assertion (the signed identity of the caller) is valid.',
    }),
    publicKeysUrl: nullable(
      Type.String({
        pattern: '^https?://[^\\u0000-\\u0020\\u007f]+$',
        maxLength: 4096,
        expects: 'an http:// or https:// URL',
      }),
      {
        description:
          'URL from which the backing services fetch the public keys: /.well-known/jwks.json of the management ' +
          'listener. null: they use the keys of signingKeyFile and publishedKeyFiles; without signingKeyFile they ' +
          'verify no assertions.',
      },
    ),
  },
  {
    description:
      'The signed identity of the calling merchant in requests to upstreams, and how the backing services verify it.',
  },
);

/** Options of the trace export. */
export const traces = section(
  {
    endpoint: nullable(
      Type.String({
        pattern: '^https?://[^?#@\\s\\\\\\u0000-\\u001f\\u007f]+$',
        maxLength: 4096,
        expects: 'an http:// or https:// URL without a user or a query',
        examples: ['http://127.0.0.1:4318/v1/traces'],
      }),
      {
        description: 'URL of a collector that accepts OTLP over HTTP, in JSON. null: tracing is off and costs nothing.',
      },
    ),
    tokenFile: optionalFile(
      'File with the token for the collector, sent as authorization: Bearer. null: no token is sent.',
    ),
    caFile: optionalFile(
      'PEM file of the CA of an https endpoint. null: the CAs that Node includes, and those in the file of NODE_EXTRA_CA_CERTS.',
    ),
    sampleOneIn: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 100,
      description:
        'On average, the gateway samples one of this many requests, chosen at random. 1: every request. The sampling ' +
        'flag of the caller is ignored.',
    }),
  },
  {
    description:
      'Request spans for a trace store. While the store is slow or unavailable, spans are dropped and counted.',
  },
);

/** Options for counting requests and sending the counts to the registry. */
export const usage = section(
  {
    enabled: Type.Boolean({
      default: true,
      description:
        'Whether gateways count requests by key, merchant and result, and send the counts to the registry. The counts are sent through Redis and authenticated with keys.recordSecretFile. Without that secret, they are not sent.',
    }),
    merchantMetrics: Type.Integer({
      minimum: 0,
      maximum: 10_000,
      default: 0,
      description:
        'Maximum number of merchants with their own series (gateway_merchant_requests_total) in each process. The first ' +
        'merchants that a process sees get their own series; all others share the series "others". 0: no series by ' +
        'merchant.',
    }),
  },
  { description: 'Counts of requests for operators and merchants. Counting never delays a request.' },
);

/** Options of the program's own log. */
export const log = section(
  {
    level: Type.Enum(['trace', 'debug', 'info', 'warn', 'error', 'silent'], {
      default: 'info',
      description: 'The lowest severity that is logged.',
    }),
  },
  { description: "The product's own log, on standard error. Requests are in accessLog." },
);
