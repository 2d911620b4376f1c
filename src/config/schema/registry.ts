import Type from '../../typebox/typebox.js';
import { noteName } from './access-log.js';
import { console } from './console.js';
import { oidc } from './oidc.js';
import { address, line, nullable, optionalFile, type OptionKeywords, requiredFile, section } from './option.js';
import { permissions } from './permissions.js';
import { unusual } from './unusual.js';

/** An option with the URL of a database. */
export function databaseUrl(keywords: OptionKeywords & { default: string }) {
  return Type.String({
    pattern: '^(?:sqlite:|postgres(?:ql)?://)[^\\u0000-\\u001f\\u007f]+$',
    maxLength: 4096,
    holds: 'database',
    ...keywords,
  });
}

/** A host name or an IP address; an IPv6 address with or without brackets. */
const hostName = '^(?:[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?|\\[?[0-9A-Fa-f:.]{2,45}\\]?)$';

/** Options of the registry, which manages merchants and API keys. */
export const registry = section(
  {
    listen: section(
      {
        ...address('127.0.0.1', 9443),
        certFile: optionalFile(
          'PEM file with the certificate, followed by its intermediates. Required unless host is a loopback address ' +
            'or registry.behindProxy is set. Changed files apply within 10 seconds. null: plain HTTP.',
        ),
        keyFile: optionalFile("PEM file with the certificate's private key."),
        clientCaFile: optionalFile(
          'PEM file of the CAs that sign client certificates. A client may then send a certificate in addition to its ' +
            'token, and a certificate that it sends must be valid. null: no certificate is requested.',
        ),
      },
      { description: 'The listener of the admin API.' },
    ),
    behindProxy: nullable(
      Type.Array(line({ expects: 'an IP address or CIDR', examples: ['10.0.0.7'] }), {
        maxItems: 1000,
        expects: 'a list of IP addresses and CIDRs',
      }),
      {
        description:
          'Addresses and CIDRs of the proxies in front of the admin API and the console. X-Forwarded-For is trusted only from these proxies. Without a certificate, the API and the console accept plain HTTP only from these proxies and from loopback addresses. null: no proxy.',
      },
    ),
    hosts: Type.Array(
      Type.String({
        pattern: hostName,
        expects: 'a host name or an IP address, without a port',
        examples: ['registry.example.com'],
      }),
      {
        default: [],
        maxItems: 1000,
        description:
          'Further host names and addresses at which clients call the admin API. It always accepts the names in its certificate, loopback names and its own address. A request with another Host header gets 421, which protects against DNS rebinding.',
        expects: 'a list of host names and IP addresses',
      },
    ),
    database: section(
      {
        url: databaseUrl({
          default: 'sqlite:var/registry.db',
          description:
            'sqlite:<file>, or postgres://user:password@host:port/database. Do not use the database of the services or of another program.',
          expects: 'sqlite:<file> or postgres://…',
        }),
      },
      { description: 'The database of the registry (the system of record), which contains the merchants and keys.' },
    ),
    tokenFile: optionalFile(
      'File with the shared bearer token, at least 32 characters. A client with this token acts as an owner named bootstrap. Use the token to create the first administrators.',
    ),
    bootstrap: Type.Enum(['on', 'off'], {
      default: 'on',
      description:
        'Whether the shared token of tokenFile is accepted. Create an owner who has another token before you set this option to off.',
    }),
    reasonFor: Type.Array(
      Type.Enum([...permissions], {
        expects: 'a permission that "merchant-gateway roles" prints',
        examples: ['keys:revoke'],
      }),
      {
        default: [],
        maxItems: 50,
        description:
          'Permissions whose use requires a reason (option `--reason`). The audit event of the change then contains the reason.',
        expects: 'a list of permissions',
      },
    ),
    approvals: nullable(
      section(
        {
          goLive: Type.Boolean({ default: true, description: 'Whether a merchant needs approval to go live.' }),
          owners: Type.Boolean({
            default: true,
            description:
              'Whether approval is needed to make an administrator an owner, to enable a disabled owner, or to give an owner another OpenID identity. This applies once two owners have been active at the same time: before that, nobody else could approve.',
          }),
          fundingAbove: nullable(
            Type.Record(
              Type.String({ pattern: '^[A-Z]{3}$' }),
              Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, examples: [100_000_000] }),
              {
                additionalProperties: false,
                expects: 'currency codes of three capital letters, each with an amount in minor units',
              },
            ),
            {
              description:
                'For each currency, the amount in minor units above which funding a wallet needs approval. Funding in a currency that is not listed always needs approval. null: no funding needs approval. Example: { NGN: 100000000 }',
            },
          ),
          changes: Type.Boolean({
            default: true,
            description:
              'Whether a change of registry.approvals itself needs approval. Until the approval, the former rules remain in force.',
          }),
        },
        { description: '' },
      ),
      {
        description:
          'Changes that another administrator must approve within 24 hours (see "merchant-gateway approvals"). ' +
          'Revoking, disabling and suspending never need approval. null: no change needs approval.',
      },
    ),
    oidc: nullable(oidc, {
      description:
        'The OpenID provider at which people sign in, for example with "merchant-gateway login". null: people use tokens, and one-time links to the console.',
    }),
    console: nullable(console, {
      description:
        'The web console, at /console/ of its own listener: people manage merchants and keys in a browser ' +
        '(docs/console.md). null: no console.',
    }),
    witness: nullable(
      section(
        {
          name: Type.String({
            pattern: noteName,
            default: 'merchant-gateway-registry',
            description: 'Name of this registry in each receipt that it signs and in its public key.',
            expects:
              'at most 173 letters, digits and . _ : / -, beginning with a letter or digit, such as control.example.com',
          }),
          keyFile: requiredFile(
            'PEM file with the Ed25519 private key that signs receipts. If the file is missing, the registry ' +
              'creates it when it starts.',
            '/var/lib/merchant-gateway/witness-key.pem',
          ),
        },
        { description: '' },
      ),
      {
        description:
          'Makes the registry a witness of access logs. It checks and stores the signed checkpoints that gateways send (accessLog.checkpoints.witness), and signs a receipt for each one. Requires keys.recordSecretFile. null: the registry accepts no checkpoints.',
      },
    ),
    servicesToken: nullable(
      section(
        {
          keyFile: requiredFile(
            'PEM file with the Ed25519 private key that signs the tokens. Create it with "openssl genpkey -algorithm ed25519".',
            '/etc/gateway/services-token-key.pem',
          ),
        },
        { description: '' },
      ),
      {
        description:
          "The registry signs tokens, valid for at most 5 minutes, with which administrators use the operators' API of the services. The " +
          'services need the public key (services.operators.registryKeys). null: no such tokens.',
      },
    ),
    unusual,
    retention: section(
      {
        eventsDays: nullable(Type.Integer({ minimum: 1, maximum: 36_500 }), {
          description:
            'Age in days after which events (who changed what and when) are deleted, in batches. null: events are ' +
            'never deleted.',
        }),
      },
      { description: 'How long the registry stores data that it no longer needs.' },
    ),
    usage: section(
      {
        hoursDays: Type.Integer({
          ...{ minimum: 1, maximum: 3_650, default: 90 },
          description: 'Age in days after which counts of requests by hour and by address are deleted.',
        }),
        refusalsDays: Type.Integer({
          ...{ minimum: 1, maximum: 3_650, default: 7 },
          description: 'Age in days after which the details of refused requests are deleted.',
        }),
        addresses: Type.Enum(['full', 'network'], {
          default: 'full',
          description:
            'Whether the registry stores full client addresses, or only their network (the /24 of an IPv4 address, the /48 of an IPv6 address).',
        }),
      },
      { description: 'What the registry stores about the requests that gateways have received.' },
    ),
  },
  { description: 'The control plane: merchants, keys and the admin API.' },
);
