import { Cluster, Redis } from 'ioredis';
import type { Command, RedisOptions } from 'ioredis';

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
   * Without Sentinel: how many replicas must confirm that they still follow this server, which shows that it is the
   * master. Null or omitted: as many as the registry has ever seen.
   */
  readonly replicas?: number | null;
}

const connectTimeoutMilliseconds = 1_000;
/** If no data arrives for this long after a command, the connection is reopened. */
const longestSilenceMilliseconds = 3_000;
const longestRetryMilliseconds = 1_000;
const reconnectIntervalMilliseconds = 1_000;
const timeoutParts = 4;
const longestPartMilliseconds = 50;
/**
 * Matches the error reply of a former master, which was demoted or isolated but keeps its connections open. An older
 * Redis puts the name of the Lua script before the error code, which then follows a hyphen.
 */
export const refusesWrites = /(?:^|-)(?:READONLY|NOREPLICAS) /;

/**
 * Opens a connection that fails fast and reconnects. With the defaults of ioredis, a GET waits more than a minute while
 * Redis is down. This connection neither queues commands while Redis is down nor sends a command twice.
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
    redisOptions: { ...optionsOf(address), commandTimeout: address.commandTimeoutMilliseconds },
    enableOfflineQueue: false,
    clusterRetryStrategy: retryAfter,
  })
    .on('error', onError)
    .on('+node', prepareNode);
}

/** Connects to a Cluster node before its first command, which would otherwise be refused. */
function prepareNode(node: Redis): void {
  ignoreRepeatedErrors(node)
    .connect()
    .catch(() => undefined); // the commands for this node report the failure
}

/** Opens a connection to one node of a Cluster. It reconnects until it is closed. */
export function connectNode(
  address: RedisAddress,
  { host, port }: HostAndPort,
  onError: (error: Error) => void,
): Redis {
  return open(address, onError, { host, port });
}

/**
 * Opens a connection to one node of a Cluster for a single query. It connects when `connect()` is called, and does not
 * reconnect.
 */
export function connectNodeOnce(
  address: RedisAddress,
  { host, port }: HostAndPort,
  onError: (error: Error) => void,
): Redis {
  return open(address, onError, { host, port, lazyConnect: true, retryStrategy: null });
}

/** Opens a connection to a sentinel, to query it about the master. It reconnects until it is closed. */
export function connectSentinel(
  address: RedisAddress,
  { host, port }: HostAndPort,
  onError: (error: Error) => void,
): Redis {
  const { username = null, password = null } = address.sentinelAccess ?? {};
  const options = { ...optionsOf({ ...address, username, password }), tls: sentinelOptionsOf(address).sentinelTLS };
  const redis = new Redis({ ...options, host, port, commandTimeout: connectTimeoutMilliseconds });
  return ignoreRepeatedErrors(redis).on('error', onError);
}

/**
 * Destroys the socket, so that ioredis reconnects at once. `disconnect` would wait until the server closes its end;
 * meanwhile the connection would seem open and refuse each command. Does nothing while the connection is being opened:
 * behind a Sentinel, a socket destroyed at that time would make ioredis stop reconnecting.
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
  return ignoreRepeatedErrors(redis).on('error', onError);
}

/**
 * Rejects a command that gets no reply within the timeout. ioredis uses one timer for the whole timeout: after a stall
 * of the process, that timer fires before Node reads a reply that has already arrived. Several shorter timers leave
 * Node time to read the reply.
 */
function timeOutCommands(redis: Redis, timeoutMilliseconds: number): void {
  const partMilliseconds = Math.min(timeoutMilliseconds / timeoutParts, longestPartMilliseconds);
  const maxChecks = Math.ceil(timeoutMilliseconds / partMilliseconds);
  let waiting: { readonly command: Command; checks: number }[] = [];
  const check = (): void => {
    const unsettled = waiting.filter(({ command }) => !command.isSettled);
    waiting = [];
    for (const one of unsettled) {
      one.checks += 1;
      if (one.checks > maxChecks) one.command.reject(new Error('Command timed out'));
      else waiting.push(one);
    }
    if (waiting.length > 0) setTimeout(check, partMilliseconds);
  };
  const send = redis.sendCommand.bind(redis);
  const sendInTime: Redis['sendCommand'] = (command, stream) => {
    if (waiting.length === 0) setTimeout(check, partMilliseconds);
    waiting.push({ command, checks: 0 });
    return send(command, stream);
  };
  redis.sendCommand = sendInTime;
}

/**
 * Ignores repeated errors of a socket. ioredis handles only the first error, and a second one would end the process. A
 * TLS socket can emit one error for each address of a host name.
 */
export function ignoreRepeatedErrors(redis: Redis): Redis {
  const bear = (): void => {
    const stream = redis.stream as Redis['stream'] | undefined; // undefined if the attempt has already failed
    stream?.on('error', () => undefined);
  };
  // With a single server, the socket is created in the event-loop turn of `connecting`. Behind a Sentinel, it is
  // created later, but before `connect`.
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
    // Without this timeout, a silent loss of the server goes unnoticed while the kernel retransmits for 15 minutes.
    socketTimeout: Math.max(longestSilenceMilliseconds, address.commandTimeoutMilliseconds),
    connectTimeout: connectTimeoutMilliseconds,
    sentinelCommandTimeout: connectTimeoutMilliseconds, // without this, a hanging sentinel would block forever
    retryStrategy: retryAfter,
    disableClientInfo: true,
  };
}

/**
 * Returns TLS options with certificate verification. ioredis verifies the host name that the sentinels or the Cluster's
 * nodes announce.
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
