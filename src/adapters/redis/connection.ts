import { Cluster, Redis } from 'ioredis';
import type { RedisOptions } from 'ioredis';
import { timeOutCommands } from './command-timeout.js';

/** Host name or IP address, and port, of a server. */
export interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

/** Access to the sentinels, which have their own users and passwords. */
export interface SentinelAccess {
  /** Name of the ACL user; null: the default user. */
  readonly username: string | null;
  readonly password: string | null;
  /** Whether connections to the sentinels use TLS. */
  readonly isSecure: boolean;
}

/** The address of Redis, and the credentials. */
export interface RedisAddress {
  /** `redis://host:port/db`, or `rediss://…` for TLS. */
  readonly url: string;
  /** The sentinels; null: no Sentinel, so the URL names the server itself. */
  readonly sentinels: readonly HostAndPort[] | null;
  /** Access to the sentinels. Null or omitted: no credentials, and TLS if `url` begins with `rediss:`. */
  readonly sentinelAccess?: SentinelAccess | null;
  /** The master's name in the sentinels' configuration. */
  readonly masterName: string;
  /** Some nodes of a Cluster; the other nodes are discovered from them. Null: not a Cluster. */
  readonly cluster: readonly HostAndPort[] | null;
  /** Name of the ACL user; null: the default user. */
  readonly username: string | null;
  readonly password: string | null;
  /** PEM of the CA that signed the server certificate; null: the CAs that Node trusts. */
  readonly ca: Buffer | null;
  readonly commandTimeoutMilliseconds: number;
  /**
   * Without Sentinel: how many replicas must confirm that they still follow this server. Their confirmation shows that
   * the server is the master. Null or omitted: as many as the registry has ever seen.
   */
  readonly replicas?: number | null;
}

const connectTimeoutMilliseconds = 1_000;
const longestRetryMilliseconds = 1_000;
const reconnectIntervalMilliseconds = 1_000;
/**
 * Matches the error reply of a former master, which was demoted or isolated but keeps its connections open. In an error
 * of a Lua script, an older Redis puts the name of the script and a hyphen before the error code.
 */
export const refusesWrites = /(?:^|-)(?:READONLY|NOREPLICAS) /;

/**
 * Opens a connection to one server, or to the master that the sentinels name. The connection fails fast and reconnects.
 * With the defaults of ioredis, a GET waits more than a minute while Redis is down. This connection neither queues
 * commands while Redis is down nor sends a command twice.
 * @param onError called for each failure of the connection; the affected command is rejected as well
 */
export function connectRedis(address: RedisAddress, onError: (error: Error) => void): Redis {
  const url = new URL(address.url);
  return open(address, onError, {
    ...(address.sentinels === null
      ? { host: hostOf(url), port: Number(url.port || 6379) }
      : {
          sentinels: [...address.sentinels],
          name: address.masterName,
          enableTLSForSentinelMode: isSecure(address),
          ...sentinelOptionsOf(address),
        }),
    db: Number(url.pathname.slice(1) || 0),
    reconnectOnError: reconnectOnRefusedWrites(),
  });
}

/**
 * Opens a connection to one server or a Cluster, for commands with one Redis key each. Every command ends with a reply
 * or an error within the command timeout. Nothing checks that the server is still the master.
 */
export function connectAny(address: RedisAddress, onError: (error: Error) => void): Redis | Cluster {
  if (address.cluster === null) return connectRedis(address, onError);
  return new Cluster([...address.cluster], {
    redisOptions: optionsOf(address),
    enableOfflineQueue: false,
    clusterRetryStrategy: retryAfter,
  })
    .on('error', onError)
    .on('+node', (node: Redis) => {
      prepareNode(node, address.commandTimeoutMilliseconds);
    });
}

/** Connects to a Cluster node at once. Otherwise the first command for the node would be rejected. */
function prepareNode(node: Redis, timeoutMilliseconds: number): void {
  timeOutCommands(node, timeoutMilliseconds);
  ignoreRepeatedErrors(node)
    .connect()
    .catch(() => undefined); // the commands for this node report the failure
}

/** Opens a connection to one node of a Cluster. The connection reconnects until it is closed. */
export function connectNode(
  address: RedisAddress,
  { host, port }: HostAndPort,
  onError: (error: Error) => void,
): Redis {
  return open(address, onError, { host, port });
}

/**
 * Creates a connection to one node of a Cluster for a single query. The connection is opened when `connect()` is
 * called, and never reopened.
 */
export function connectNodeOnce(
  address: RedisAddress,
  { host, port }: HostAndPort,
  onError: (error: Error) => void,
): Redis {
  return open(address, onError, { host, port, lazyConnect: true, retryStrategy: null });
}

/** Opens a connection to a sentinel, to query it about the master. The connection reconnects until it is closed. */
export function connectSentinel(
  address: RedisAddress,
  { host, port }: HostAndPort,
  onError: (error: Error) => void,
): Redis {
  const { username = null, password = null } = address.sentinelAccess ?? {};
  const options = { ...optionsOf({ ...address, username, password }), tls: sentinelOptionsOf(address).sentinelTLS };
  const redis = new Redis({ ...options, host, port });
  timeOutCommands(redis, connectTimeoutMilliseconds);
  return ignoreRepeatedErrors(redis).on('error', onError);
}

/**
 * Destroys the socket, so that ioredis reconnects at once. `disconnect` would wait until the server closes its end.
 * Meanwhile the connection would seem open and refuse each command. Does nothing while ioredis is connecting: behind a
 * Sentinel, ioredis would stop reconnecting if its socket were destroyed at that time.
 */
export function reopen(redis: Redis): void {
  if (redis.status === 'ready') redis.stream.destroy();
}

/** Whether connections to Redis use TLS. */
export function isSecure({ url }: RedisAddress): boolean {
  return new URL(url).protocol === 'rediss:';
}

type ConnectionTarget = Pick<
  RedisOptions,
  | 'host'
  | 'port'
  | 'db'
  | 'sentinels'
  | 'name'
  | 'enableTLSForSentinelMode'
  | 'sentinelUsername'
  | 'sentinelPassword'
  | 'sentinelTLS'
  | 'lazyConnect'
  | 'retryStrategy'
  | 'reconnectOnError'
>;

function open(address: RedisAddress, onError: (error: Error) => void, where: ConnectionTarget): Redis {
  const redis = new Redis({ ...optionsOf(address), ...where });
  timeOutCommands(redis, address.commandTimeoutMilliseconds);
  requireDatabase(redis);
  return ignoreRepeatedErrors(redis).on('error', onError);
}

/**
 * Reconnects if SELECT fails, for example because the user lacks the right. Otherwise ioredis would use database 0,
 * which could belong to another deployment.
 */
function requireDatabase(redis: Redis): void {
  const send = redis.sendCommand.bind(redis);
  const sendOrReconnect: Redis['sendCommand'] = (command, stream) => {
    const sent = send(command, stream);
    if (command.name === 'select') {
      const socket = redis.stream;
      command.promise.catch(() => socket.destroy());
    }
    return sent;
  };
  redis.sendCommand = sendOrReconnect;
}

/**
 * Ignores repeated errors of a socket. ioredis handles only the first error, and a second one would end the process. A
 * TLS socket can emit one error for each address of a host name.
 */
export function ignoreRepeatedErrors(redis: Redis): Redis {
  const bear = (): void => {
    const stream = redis.stream as Redis['stream'] | undefined; // undefined if connecting has already failed
    stream?.on('error', () => undefined);
  };
  // With a single server, the socket exists at the end of the event-loop turn in which ioredis emits `connecting`.
  // Behind a Sentinel, the socket is created later, but before ioredis emits `connect`.
  return redis.on('connecting', () => setImmediate(bear)).on('connect', bear);
}

/**
 * Returns a `reconnectOnError` callback for ioredis. It requests a reconnect after READONLY or NOREPLICAS, because the
 * server may no longer be the master. It does so at most once a second, because the host name may still resolve to the
 * former master.
 */
function reconnectOnRefusedWrites(): (error: Error) => boolean {
  let leftAt = -Infinity;
  return ({ message }) => {
    if (!refusesWrites.test(message) || performance.now() - leftAt < reconnectIntervalMilliseconds) return false;
    leftAt = performance.now();
    return true;
  };
}

function retryAfter(attempt: number): number {
  return Math.min(attempt * 50, longestRetryMilliseconds);
}

function optionsOf(address: RedisAddress) {
  const tls = isSecure(address) ? tlsOf(address) : null;
  return {
    ...(address.username === null ? {} : { username: address.username }),
    ...(address.password === null ? {} : { password: address.password }),
    ...(tls === null ? {} : { tls }),
    protocol: 2 as const, // ioredis silently drops the invalidation messages of RESP3
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    connectTimeout: connectTimeoutMilliseconds,
    sentinelCommandTimeout: connectTimeoutMilliseconds, // without this, a hanging sentinel would block forever
    retryStrategy: retryAfter,
    disableClientInfo: true,
  };
}

/**
 * Returns TLS options that verify the server's certificate. The certificate must be valid for the host to which ioredis
 * connects: the configured host, or the host that the sentinels or the Cluster's nodes announce.
 */
function tlsOf({ ca }: RedisAddress) {
  return { rejectUnauthorized: true, ...(ca === null ? {} : { ca }) };
}

function sentinelOptionsOf(
  address: RedisAddress,
): Pick<ConnectionTarget, 'sentinelUsername' | 'sentinelPassword' | 'sentinelTLS'> {
  const { username = null, password = null, isSecure: overTls = isSecure(address) } = address.sentinelAccess ?? {};
  return {
    ...(username === null ? {} : { sentinelUsername: username }),
    ...(password === null ? {} : { sentinelPassword: password }),
    ...(overTls ? { sentinelTLS: tlsOf(address) } : {}),
  };
}

function hostOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, '$1');
}
