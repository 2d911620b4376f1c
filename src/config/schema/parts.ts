import Type from 'typebox';
import { address, line, optionalFile, section } from './option.js';
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
      'PEM file with the private key for the signed identity (x-gateway-assertion) that upstreams get. null: none.',
      { unavailable: true },
    ),
  },
  { description: 'How the gateway proves to upstreams that it is the gateway.' },
);

/** The record of every request. */
export const accessLog = section(
  {
    destination: line({
      default: 'stdout',
      description: 'stdout, or the path of a file.',
      expects: 'stdout or the path of a file',
    }),
    secretFile: optionalFile('File with the secret that protects the chain of lines against change.', {
      unavailable: true,
    }),
    onFailure: Type.Enum(['refuse', 'continue'], {
      default: 'refuse',
      description: 'What becomes of requests when a line cannot be written.',
      unavailable: true,
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
