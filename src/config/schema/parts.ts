import Type from 'typebox';
import { address, line, nullable, optionalFile, section } from './option.js';
import type { OptionKeywords } from './option.js';

function databaseUrl(keywords: OptionKeywords & { default: string }) {
  return Type.String({
    pattern: '^(?:sqlite:|postgres(?:ql)?://)[^\\u0000-\\u001f\\u007f]+$',
    maxLength: 4096,
    ...keywords,
  });
}

/** The control plane. */
export const registry = section(
  {
    listen: section(address('127.0.0.1', 9443), { description: 'The admin API and the console.' }),
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
  },
  { description: 'The control plane: merchants, keys and the admin API.' },
);

/** The backing services. */
export const services = section(
  {
    listen: section(address('127.0.0.1', 7080), { description: 'For the gateway alone.' }),
    database: section(
      {
        url: databaseUrl({
          default: 'sqlite:var/services.db',
          description: 'sqlite:<file>.',
          expects: 'sqlite:<file>',
          unavailable: { pattern: '^postgres', is: 'PostgreSQL' },
        }),
      },
      { description: 'Where their data is.' },
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
    publishedKeyFiles: Type.Array(line({ expects: 'the path of a file', examples: ['/etc/gateway/next-key.pem'] }), {
      default: [],
      maxItems: 16,
      description:
        'PEM files with further keys, public or private, that upstreams shall know: while keys are rotated, the next and the last one.',
      expects: 'a list of paths of files',
    }),
    issuer: line({ default: 'merchant-gateway', description: 'Who signs: `iss`.', expects: 'a name or URL' }),
    audience: line({ default: 'merchant-gateway', description: 'For whom: `aud`.', expects: 'a name or URL' }),
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

/** The record of every request. */
export const accessLog = section(
  {
    destination: line({
      default: 'stdout',
      description: 'stdout, or the path of a file.',
      expects: 'stdout or the path of a file',
    }),
    secretFile: optionalFile(
      'File with a secret of at least 16 random bytes, under which lines are chained against change and keys have ' +
        'fingerprints. null: the chain shows accidental damage alone, and there are no fingerprints.',
    ),
    onFailure: Type.Enum(['refuse', 'continue'], {
      default: 'refuse',
      description:
        'What becomes of requests while lines cannot be written: refuse answers 503 and is not ready, so that no ' +
        'request leaves no trace; continue takes them, and counts the lines that are lost.',
    }),
  },
  { description: 'One JSON line a request, accepted or refused.' },
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
