import Type from '../../typebox/typebox.js';
import { address, line, nullable, optionalFile, requiredFile, section } from './option.js';
import type { OptionKeywords } from './option.js';

function databaseUrl(keywords: OptionKeywords & { default: string }) {
  return Type.String({
    pattern: '^(?:sqlite:|postgres(?:ql)?://)[^\\u0000-\\u001f\\u007f]+$',
    maxLength: 4096,
    holds: 'database',
    ...keywords,
  });
}

/** The control plane. */
export const registry = section(
  {
    listen: section(address('127.0.0.1', 9443), { description: 'The admin API.' }),
    database: section(
      {
        url: databaseUrl({
          default: 'sqlite:var/registry.db',
          description: 'sqlite:<file>, or postgres://user:password@host:port/database, a database of its own.',
          expects: 'sqlite:<file> or postgres://…',
        }),
      },
      { description: 'The system of record of merchants and keys.' },
    ),
    tokenFile: optionalFile('File with the bearer token of administrators, of at least 32 characters.'),
    retention: section(
      {
        eventsDays: nullable(Type.Integer({ minimum: 1, maximum: 36_500 }), {
          description:
            'Events (who changed what and when) that are older than so many days are deleted, bit by bit. null: they are ' +
            'kept for ever.',
        }),
      },
      { description: 'How long the registry keeps what it no longer needs.' },
    ),
  },
  { description: 'The control plane: merchants, keys and the admin API.' },
);

/** How connections to PostgreSQL are used. */
const pool = {
  maxConnections: Type.Integer({
    minimum: 1,
    maximum: 1000,
    default: 10,
    description: 'Connections to PostgreSQL, of each process. SQLite has one.',
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
      'How long a statement may take on PostgreSQL, waiting for locks included. After that: 503. A migration has an hour.',
  }),
};

/** The backing services. */
export const services = section(
  {
    listen: section(address('127.0.0.1', 7080), { description: 'For the gateway alone.' }),
    database: section(
      {
        url: databaseUrl({
          default: 'sqlite:var/services.db',
          description: 'sqlite:<file>, or postgres://user:password@host:port/database, a database of its own.',
          expects: 'sqlite:<file> or postgres://…',
        }),
        ...pool,
      },
      { description: 'Where their data is.' },
    ),
    operators: section(
      {
        listen: section(
          {
            ...address('127.0.0.1', 7081),
            certFile: optionalFile(
              'PEM file with the certificate, followed by its intermediates. Required beyond the loopback addresses. null: plain HTTP.',
            ),
            keyFile: optionalFile("PEM file with the certificate's private key."),
          },
          { description: 'Not for the gateway, and not behind it.' },
        ),
        tokenFile: optionalFile(
          "File with the operators' bearer token, of at least 32 characters. null: nobody can make a wallet or move money.",
        ),
      },
      { description: "The operators' API: wallets, and the money in them (merchant-gateway wallets)." },
    ),
    bank: section(
      {
        delaySeconds: Type.Integer({
          minimum: 0,
          maximum: 86_400,
          default: 1,
          description: 'How long a payout stays pending, and then processing.',
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
              'Account numbers and recipients to which the bank pays nothing: such a payout fails, and its wallet gets the money back.',
            expects: 'a list of account numbers and recipients',
          },
        ),
      },
      { description: 'The simulated bank, which decides what becomes of payouts.' },
    ),
  },
  { description: 'The backing services: transactions, payouts, wallets and customers.' },
);

/** The identity that a gateway proves to upstreams. */
export const identity = section(
  {
    signingKeyFile: optionalFile(
      'PEM file with the private key, Ed25519 or P-256, that signs who calls (x-gateway-assertion) for upstreams. null: none.',
    ),
    publishedKeyFiles: Type.Array(
      line({ expects: 'the path of a file', examples: ['/etc/gateway/next-key.pem'], holds: 'path' }),
      {
        default: [],
        maxItems: 16,
        description:
          'PEM files with further keys, public or private, that upstreams shall know: while keys are rotated, the next and the last one.',
        expects: 'a list of paths of files',
      },
    ),
    issuer: line({ default: 'merchant-gateway', description: 'Who signs: `iss`.', expects: 'a name or URL' }),
    audience: nullable(line({ expects: 'a name or URL' }), {
      description:
        'A second audience beside the name of the upstream in `aud`, for services of the former release ' +
        '(merchant-gateway) or services that ask for a common one. null: the upstream alone.',
    }),
    lifetimeSeconds: Type.Integer({
      minimum: 10,
      maximum: 3600,
      default: 60,
      description: 'How long an upstream may believe an assertion.',
    }),
    publicKeysUrl: nullable(
      Type.String({
        pattern: '^https?://[^\\u0000-\\u0020\\u007f]+$',
        maxLength: 4096,
        expects: 'an http:// or https:// URL',
      }),
      {
        description:
          'Where the backing services fetch the public keys: /.well-known/jwks.json of the management listener. ' +
          'null: they take those of signingKeyFile and publishedKeyFiles.',
      },
    ),
  },
  { description: 'How the gateway proves to upstreams that it is the gateway, and how the backing services check it.' },
);

const checkpoints = section(
  {
    name: Type.String({
      pattern: '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$',
      default: 'merchant-gateway',
      description: 'Names the instance, or the replicas that share its key, in each checkpoint and in the public key.',
      expects: 'an address without a scheme, such as gateway.example.com/live',
    }),
    keyFile: requiredFile(
      'PEM file with the Ed25519 private key that signs. A start makes it where it is missing.',
      '/var/lib/merchant-gateway/instance-key.pem',
    ),
    file: requiredFile(
      'File to which checkpoints are appended, one JSON object a line. Best on another machine, or where nobody can ' +
        'change what was written. Processes may share it.',
      '/var/lib/merchant-gateway/checkpoints.jsonl',
    ),
    everySeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 10,
      description: 'Seconds between checkpoints. Lines behind the newest checkpoint can be removed without a trace.',
    }),
  },
  { description: '' },
);

/** The record of every request. */
export const accessLog = section(
  {
    destination: line({
      default: 'stdout',
      description: 'stdout, or the path of a file.',
      expects: 'stdout or the path of a file',
      holds: 'destination',
    }),
    secretFile: optionalFile(
      'File with a secret of at least 16 random bytes, under which lines are chained against change and keys have ' +
        'fingerprints. null: the chain shows accidental damage alone, and there are no fingerprints.',
    ),
    checkpoints: nullable(checkpoints, {
      description:
        'Signs checkpoints of the log, so that anybody can verify all of it with a public key. Each file of the log can ' +
        'then be deleted by itself. null: no checkpoints, and the lines are chained under the secret.',
    }),
    onFailure: Type.Enum(['refuse', 'continue'], {
      default: 'refuse',
      description:
        'What becomes of requests while lines cannot be written: refuse answers 503 and is not ready, so that no ' +
        'request leaves no trace; continue takes them, and counts the lines that are lost.',
    }),
    reserveBytes: Type.Integer({
      minimum: 0,
      maximum: 1_125_899_906_842_624,
      default: 268_435_456,
      description:
        "Room on the file's disk that is kept for accepted requests and refusals of known keys: while there is less, all " +
        'others share one line a second. 0: none. Of stdout nobody knows the room.',
    }),
  },
  {
    description:
      'One JSON line a request, accepted or refused. Too many requests of a source without an acceptable key share one ' +
      'line a second, with their number.',
  },
);

/** Where traces are sent. */
export const traces = section(
  {
    endpoint: nullable(
      Type.String({
        pattern: '^https?://[^?#@\\s\\\\\\u0000-\\u001f\\u007f]+$',
        maxLength: 4096,
        expects: 'an http:// or https:// URL without a user and a query',
        examples: ['http://127.0.0.1:4318/v1/traces'],
      }),
      { description: 'Where a collector takes traces by OTLP over HTTP, in JSON. null: nowhere, which costs nothing.' },
    ),
    tokenFile: optionalFile('File with a token that the collector asks for (authorization: Bearer). null: none.'),
    caFile: optionalFile(
      "PEM file of the authority that signed an https endpoint's certificate. null: those that the system trusts.",
    ),
    sampleOneIn: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 100,
      description: 'One request in so many is sent, by chance; 1: each. What callers say of that is not heard.',
    }),
  },
  { description: 'Spans of requests for a trace store. They are dropped, and counted, where it is slow or away.' },
);

/** The product's own log. */
export const log = section(
  {
    level: Type.Enum(['trace', 'debug', 'info', 'warn', 'error', 'silent'], {
      default: 'info',
      description: 'The least severe messages that are written.',
    }),
  },
  { description: "The product's own log." },
);
