import Type from '../../typebox/typebox.js';
import { line, nullable, optionalFile, section } from './option.js';

const server = (example: string) =>
  Type.String({
    pattern: '^(?:[A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]{1,5}$',
    expects: 'host:port',
    examples: [example],
  });

const sentinel = section(
  {
    masterName: line({ default: 'mymaster', description: 'The name that the sentinels know the master by.' }),
    servers: Type.Array(server('sentinel-0.example:26379'), {
      maxItems: 32,
      description: 'The sentinels.',
      expects: 'a list of host:port',
      examples: [['sentinel-0.example:26379']],
    }),
    username: nullable(line({}), { description: "The sentinels' own user. null: the default user." }),
    passwordFile: optionalFile("File with the sentinels' own password (requirepass or ACL of theirs). null: none."),
    tls: nullable(Type.Boolean(), {
      description: 'Whether the sentinels are spoken to over TLS. null: as the url of Redis says.',
    }),
  },
  { description: '' },
);

const redis = section(
  {
    url: Type.String({
      pattern: '^rediss?://[^\\s@]+$',
      maxLength: 4096,
      default: 'redis://127.0.0.1:6379',
      description:
        'Server, as redis://host:port or, with TLS, rediss://host:port; /number after it selects a database. With ' +
        'sentinel only its scheme and its database count, with cluster only its scheme.',
      expects: 'redis:// or rediss://, a host and no user or password (those are options of their own)',
    }),
    prefix: line({ default: 'mg:', description: 'Put in front of the name of every record.' }),
    username: nullable(line({}), { description: 'User of an access control list. null: the default user.' }),
    passwordFile: optionalFile('File with the password. null: none.'),
    caFile: optionalFile('PEM file of the authority that signed the certificate, for rediss://. null: public ones.'),
    sentinel: nullable(sentinel, { description: 'The sentinels that know which server is the master. null: none.' }),
    cluster: nullable(Type.Array(server('redis-0.example:6379'), { maxItems: 32, expects: 'a list of host:port' }), {
      description:
        'Some nodes of a Redis Cluster, through which the others are found. null: it is no Cluster. Over TLS nodes ' +
        'are connected to, and checked, by the name that they announce (cluster-announce-hostname), or else by address.',
    }),
    commandTimeoutMilliseconds: Type.Integer({
      minimum: 10,
      maximum: 10_000,
      default: 200,
      description: 'How long an answer is waited for before Redis counts as away.',
    }),
    replicas: nullable(Type.Integer({ minimum: 0, maximum: 1000 }), {
      description:
        'Without sentinel, and while the registry is away: how many replicas must confirm that they follow the server. null: as many as ' +
        'Redis has shown to the registry. Set it where Redis does not show its replicas, as behind one name for a managed failover ' +
        'pair. A lower number leaves out replicas that are gone for good, or that nobody promotes.',
    }),
  },
  { description: 'The Redis that the registry writes and gateways read. It must never evict (noeviction).' },
);

const cache = section(
  {
    maxEntries: Type.Integer({
      minimum: 1,
      maximum: 10_000_000,
      default: 100_000,
      description: 'Keys that are held, and as many merchants. `config check` says what memory that takes.',
    }),
    maxAgeSeconds: Type.Integer({
      minimum: 0,
      maximum: 86_400,
      default: 60,
      description: 'How long a record is used before it is asked for again.',
    }),
    unknownMaxEntries: Type.Integer({
      minimum: 1,
      maximum: 10_000_000,
      default: 100_000,
      description: 'Unknown keys that are remembered as unknown.',
    }),
    unknownMaxAgeSeconds: Type.Integer({
      minimum: 0,
      maximum: 86_400,
      default: 5,
      description: 'How long a key is remembered as unknown.',
    }),
    maxStaleSeconds: Type.Integer({
      minimum: 0,
      maximum: 86_400,
      default: 30,
      description: 'How long records are still used when the store cannot be asked. After that: 503.',
    }),
    preload: Type.Boolean({
      default: true,
      description:
        'Read all records of the environment in the background, up to maxEntries, so that a short outage of the store refuses no key.',
    }),
  },
  { description: 'Records that a gateway holds, so that it need not ask for each request.' },
);

const memory = section(
  { recordsFile: optionalFile('JSON file with the records, for the kind memory.') },
  { description: 'A store within the process, read from a file when it starts.' },
);

/** Where API keys and merchants are looked up. */
export const keyStore = section(
  {
    kind: Type.Enum(['redis', 'memory'], { default: 'redis', description: 'Which store.' }),
    memory,
    redis,
    cache,
  },
  { description: 'Where API keys and merchants are looked up.' },
);

/** How API keys are looked up. */
export const keys = section(
  {
    pepperFile: optionalFile(
      'File with the secret for HMAC-SHA-256 of API keys. null: plain SHA-256. A change makes every key unknown.',
    ),
    recordSecretFile: optionalFile(
      'File with the secret that seals records in Redis, at least 32 bytes: the registry seals, and gateways with it ' +
        'believe sealed records only. A second line is a second secret, which is accepted too, to replace one by the ' +
        'other. null: not sealed. The registry gets it first.',
    ),
  },
  { description: 'How API keys are hashed, and their records sealed.' },
);

/** The list of Tor exits. */
export const torExits = section(
  {
    enabled: Type.Boolean({ default: true, description: 'Refuse clients that come from Tor exits.' }),
    sources: Type.Array(
      line({
        expects: 'an http or https URL or the path of a file',
        examples: ['https://lists.example/tor-exits'],
        holds: 'source',
      }),
      {
        default: ['https://check.torproject.org/torbulkexitlist'],
        maxItems: 32,
        description:
          'URLs and files with the addresses of exits. Their formats are told by their content: torbulkexitlist (an ' +
          "address a line), exit-addresses, Onionoo's details (JSON, the only one with IPv6), or CSV.",
        expects: 'a list of URLs and paths',
      },
    ),
    refreshMinutes: Type.Integer({
      minimum: 1,
      maximum: 1440,
      default: 60,
      description:
        'How often the sources are read again, by one gateway for all; twice within maxAgeHours at least. A file that ' +
        'is replaced is read at once.',
    }),
    snapshotFile: line({
      default: 'var/tor-exits.json',
      description: 'Where the last good list is kept for the next start.',
      expects: 'the path of a file',
      holds: 'path',
    }),
    whenUnavailable: Type.Enum(['deny', 'allow'], {
      default: 'deny',
      description:
        'deny: not ready until a list is loaded, and requests get 503. allow: without a list, nobody is taken for an exit.',
    }),
    maxAgeHours: Type.Integer({
      minimum: 1,
      maximum: 8760,
      default: 48,
      description:
        'A list that is older by its own date, or that its source has not confirmed for longer, counts as unavailable. The time of a file only warns.',
    }),
    allowReserved: Type.Boolean({
      default: false,
      description: 'Keep entries in private, loopback and documentation ranges. For test set-ups.',
    }),
  },
  { description: 'The exits of the Tor network, whose clients are refused.' },
);

/** Databases about addresses. */
export const geoip = section(
  {
    countryFile: optionalFile('Country of an address, for the access log. null: none.'),
    asnFile: optionalFile('Autonomous system of an address, for the access log. null: none.'),
    anonymousIpFile: optionalFile('Anonymous IP database, a second witness of Tor exits besides torExits. null: none.'),
  },
  { description: 'Databases in MaxMind format (.mmdb), read again when they are replaced.' },
);
