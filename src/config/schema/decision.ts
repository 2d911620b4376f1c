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
    masterName: line({ default: 'mymaster', description: 'Name of the master in the configuration of the sentinels.' }),
    servers: Type.Array(server('sentinel-0.example:26379'), {
      maxItems: 32,
      description: 'Addresses of the sentinels.',
      expects: 'a list of host:port',
      examples: [['sentinel-0.example:26379']],
    }),
    username: nullable(line({}), { description: 'ACL user at the sentinels. null: the default user.' }),
    passwordFile: optionalFile(
      'File with the password for the sentinels (their requirepass or ACL). null: no password.',
    ),
    tls: nullable(Type.Boolean(), {
      description: 'Whether connections to the sentinels use TLS. null: they do if url begins with rediss://.',
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
        'Server, as redis://host:port or, with TLS, rediss://host:port; a trailing /number selects a database. With ' +
        'sentinel, only the scheme and the database apply; with cluster, only the scheme.',
      expects: 'redis:// or rediss:// and a host, without user and password (which have separate options)',
    }),
    prefix: line({ default: 'mg:', description: 'Prefix of the name of every Redis key.' }),
    username: nullable(line({}), { description: 'ACL user. null: the default user.' }),
    passwordFile: optionalFile('File with the password. null: no password.'),
    caFile: optionalFile(
      'PEM file of the CA of the server, for rediss://. null: the CAs that Node includes, and those in the file of NODE_EXTRA_CA_CERTS.',
    ),
    sentinel: nullable(sentinel, { description: 'Redis Sentinel, which names the master. null: no Sentinel.' }),
    cluster: nullable(Type.Array(server('redis-0.example:6379'), { maxItems: 32, expects: 'a list of host:port' }), {
      description:
        'Seed nodes of a Redis Cluster, through which the gateway discovers the other nodes. Over TLS, it connects to each node by the name that the node announces (cluster-announce-hostname), or else by its IP address. The certificate of the node must be valid for that name or address. null: not a Cluster.',
    }),
    commandTimeoutMilliseconds: Type.Integer({
      minimum: 10,
      maximum: 10_000,
      default: 200,
      description: 'How long a command may wait for its reply before Redis counts as unavailable.',
    }),
    replicas: nullable(Type.Integer({ minimum: 0, maximum: 1000 }), {
      description:
        'While the registry is unavailable, the gateway accepts its Redis server as the master only if this many replicas confirm a write. This check is not made with sentinel or cluster. null: the number of replicas that Redis reported to the registry. Set this option if some replicas are permanently gone or are never promoted. Also set it if Redis hides its replicas, as in some managed services with failover behind one host name.',
    }),
  },
  {
    description:
      'The Redis to which the registry writes records, and from which gateways read them. It must not evict keys (noeviction).',
  },
);

const cache = section(
  {
    maxEntries: Type.Integer({
      minimum: 1,
      maximum: 10_000_000,
      default: 100_000,
      description:
        'Maximum number of cached API keys, and of cached merchants. `config check` prints the memory that they take.',
    }),
    maxAgeSeconds: Type.Integer({
      minimum: 0,
      maximum: 86_400,
      default: 60,
      description: 'How long a cached record is used before it is read from the store again.',
    }),
    unknownMaxEntries: Type.Integer({
      minimum: 1,
      maximum: 10_000_000,
      default: 100_000,
      description: 'Maximum number of cached negative lookups (keys that do not exist).',
    }),
    unknownMaxAgeSeconds: Type.Integer({
      minimum: 0,
      maximum: 86_400,
      default: 5,
      description: 'How long a negative lookup is cached.',
    }),
    maxStaleSeconds: Type.Integer({
      minimum: 0,
      maximum: 86_400,
      default: 30,
      description:
        'How long the gateway still uses cached records (stale records) while the store is unavailable. After that, requests get 503.',
    }),
    preload: Type.Boolean({
      default: true,
      description:
        'Whether the gateway reads all records of its environment into the cache when it starts. It reads them in the background, up to maxEntries. During a short outage of the store, it can then accept the keys in the cache.',
    }),
  },
  { description: 'Cache of records in a gateway, which saves a store lookup per request.' },
);

const memory = section(
  { recordsFile: optionalFile('JSON file with the records, for kind: memory.') },
  { description: 'An in-process store, read from a file at the start.' },
);

/** Options of the store that contains API keys and merchants. */
export const keyStore = section(
  {
    kind: Type.Enum(['redis', 'memory'], { default: 'redis', description: 'The kind of store.' }),
    memory,
    redis,
    cache,
  },
  { description: 'The store in which API keys and merchants are looked up.' },
);

/** Options of the secrets for API keys and their records. */
export const keys = section(
  {
    pepperFile: optionalFile(
      'File with the secret for HMAC-SHA-256 of API keys. null: plain SHA-256. If you change this secret, every key becomes invalid.',
    ),
    recordSecretFile: optionalFile(
      'File with a secret of at least 32 bytes, with which the registry seals (authenticates) the records in Redis. A ' +
        'gateway with the secret accepts only sealed records. During a rotation, a second line can hold a second secret, which is also accepted. Configure the secret first at the registry, then at the gateways. null: records are not sealed.',
    ),
  },
  { description: 'How API keys are hashed and their records are sealed.' },
);

/** Options for rejecting clients that connect from Tor exits. */
export const torExits = section(
  {
    enabled: Type.Boolean({ default: true, description: 'Whether clients from Tor exits are rejected.' }),
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
          'URLs and files with the addresses of exits. The format is detected from the content: torbulkexitlist (one ' +
          'address per line), exit-addresses, Onionoo details (JSON), or CSV. Of the lists that the Tor Project ' +
          'publishes, only Onionoo details contains IPv6 addresses.',
        expects: 'a list of URLs and paths',
      },
    ),
    refreshMinutes: Type.Integer({
      minimum: 1,
      maximum: 1440,
      default: 60,
      description:
        'Interval at which one gateway reads the sources again on behalf of all gateways. If it is longer than half of maxAgeHours, half of maxAgeHours applies. A source file that was replaced is read at once.',
    }),
    snapshotFile: line({
      default: 'var/tor-exits.json',
      description: 'File in which the last valid list is stored for the next start.',
      expects: 'the path of a file',
      holds: 'path',
    }),
    whenUnavailable: Type.Enum(['deny', 'allow'], {
      default: 'deny',
      description:
        'deny: until a list is loaded, the gateway is not ready and requests get 503. allow: without a list, no ' +
        'client counts as an exit.',
    }),
    maxAgeHours: Type.Integer({
      minimum: 1,
      maximum: 8760,
      default: 48,
      description:
        'Maximum age of a list; an older list counts as unavailable. The age counts from the date in the list or in the header Last-Modified. Without such a date, it counts from the last successful read of the source. An old modification time of a file only causes a warning.',
    }),
    allowReserved: Type.Boolean({
      default: false,
      description:
        'Whether the list may contain addresses in private, loopback and documentation ranges. Only for tests.',
    }),
  },
  { description: 'The exits of the Tor network, whose clients are rejected.' },
);

/** Options of the GeoIP databases. */
export const geoip = section(
  {
    countryFile: optionalFile('Country database, for the access log. null: no country in the log.'),
    asnFile: optionalFile('Autonomous system database, for the access log. null: no AS in the log.'),
    anonymousIpFile: optionalFile(
      'Anonymous IP database, a second source of Tor exits besides torExits. null: no second source.',
    ),
  },
  { description: 'GeoIP databases in MaxMind format (.mmdb), read again when replaced.' },
);
