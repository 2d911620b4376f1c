import { Cluster, Redis } from 'ioredis';
import type { Command, RedisOptions } from 'ioredis';

/** A server by its name or address. */
export interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

/** Who we are to the sentinels, which have users and passwords of their own. */
export interface SentinelAccess {
  /** Null: the default user. */
  readonly username: string | null;
  readonly password: string | null;
  /** Whether they are spoken to over TLS. */
  readonly isSecure: boolean;
}

/** Where Redis is and who we are to it. */
export interface RedisAddress {
  /** `redis://host:port/db` or, with TLS, `rediss://…`. */
  readonly url: string;
  /** Servers of a Sentinel set-up; null: the URL names the server itself. */
  readonly sentinels: readonly HostAndPort[] | null;
  /** Null or left out: nobody, over TLS where the URL says so. */
  readonly sentinelAccess?: SentinelAccess | null;
  /** The name that the sentinels know the master by. */
  readonly masterName: string;
  /** Some nodes of a Cluster, which know the others; null: it is none. */
  readonly cluster: readonly HostAndPort[] | null;
  /** User of an access control list; null: the default user. */
  readonly username: string | null;
  readonly password: string | null;
  /** PEM of the authority that signed its certificate; null: those that Node trusts. */
  readonly ca: Buffer | null;
  readonly commandTimeoutMilliseconds: number;
  /** How many replicas must confirm that they follow the server, where there is no sentinel; null: all that the registry has seen. */
  readonly replicas?: number | null;
}

const connectTimeoutMilliseconds = 1_000;
/** How long a connection may be silent after a question before it is opened anew. */
const longestSilenceMilliseconds = 3_000;
const longestRetryMilliseconds = 1_000;
const leavingMilliseconds = 1_000;
const timeoutParts = 4;
const longestPartMilliseconds = 50;
/** What a master says that was demoted, or cut off: it keeps its connections. An older Redis says it behind the name of a script. */
export const refusesWrites = /(?:^|-)(?:READONLY|NOREPLICAS) /;

/**
 * Opens a connection that fails fast and comes back by itself: with ioredis's defaults one GET waits for more than a
 * minute while Redis is down. Nothing is queued while it is away, and nothing is sent twice.
 * @param onError told of each failure of the connection; the command that met it is rejected as well
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
    reconnectOnError: leavingWhatRefusesWrites(),
  });
}

/** Opens a Redis of whatever kind for commands of one name each, of which nothing is expected but an answer in time. */
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

/** Connects to a node before its first command: those that come while that one connects would be refused. */
function prepareNode(node: Redis): void {
  bearRepeatedErrors(node)
    .connect()
    .catch(() => undefined); // its commands tell
}

/** Opens a connection to one node of a Cluster, which comes back by itself until it is closed. */
export function connectNode(
  address: RedisAddress,
  { host, port }: HostAndPort,
  onError: (error: Error) => void,
): Redis {
  return open(address, onError, { host, port });
}

/** Opens a connection to one node of a Cluster for a single question: it is tried once, when `connect()` is called. */
export function connectNodeOnce(
  address: RedisAddress,
  { host, port }: HostAndPort,
  onError: (error: Error) => void,
): Redis {
  return open(address, onError, { host, port, lazyConnect: true, retryStrategy: null });
}

/** Opens a connection to a sentinel for questions about the master. It connects with the first `connect()`, and comes back by itself. */
export function connectSentinel(
  address: RedisAddress,
  { host, port }: HostAndPort,
  onError: (error: Error) => void,
): Redis {
  const { username = null, password = null } = address.sentinelAccess ?? {};
  const options = { ...optionsOf({ ...address, username, password }), tls: sentinelOptionsOf(address).sentinelTLS };
  const redis = new Redis({ ...options, host, port, commandTimeout: connectTimeoutMilliseconds });
  return bearRepeatedErrors(redis).on('error', onError);
}

/**
 * Opens a connection anew, and ends the former one at once: with `disconnect`, which waits for the other end to close it, it would seem
 * to be open meanwhile and refuse each command. One that is being opened stays: behind a Sentinel ioredis would give it up for good.
 */
export function openAnew(redis: Redis): void {
  if (redis.status === 'ready') redis.stream.destroy();
}

/** Whether Redis is spoken to over TLS. */
export function isSecure({ url }: RedisAddress): boolean {
  return new URL(url).protocol === 'rediss:';
}

type Where = Pick<
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

function open(address: RedisAddress, onError: (error: Error) => void, where: Where): Redis {
  const redis = new Redis({ ...optionsOf(address), ...where });
  endLateCommands(redis, address.commandTimeoutMilliseconds);
  return bearRepeatedErrors(redis).on('error', onError);
}

/**
 * Rejects commands that are not answered in time, at looks that are apart by a part of that. With a timer for the whole, as
 * ioredis has, a process that is held up for so long takes a reply that it has not read yet for one that did not come.
 */
function endLateCommands(redis: Redis, timeoutMilliseconds: number): void {
  const partMilliseconds = Math.min(timeoutMilliseconds / timeoutParts, longestPartMilliseconds);
  const looks = Math.ceil(timeoutMilliseconds / partMilliseconds);
  let waiting: { readonly command: Command; looks: number }[] = [];
  const look = (): void => {
    const unsettled = waiting.filter(({ command }) => !command.isSettled);
    waiting = [];
    for (const one of unsettled) {
      one.looks += 1;
      if (one.looks > looks) one.command.reject(new Error('Command timed out'));
      else waiting.push(one);
    }
    if (waiting.length > 0) setTimeout(look, partMilliseconds);
  };
  const send = redis.sendCommand.bind(redis);
  const sendInTime: Redis['sendCommand'] = (command, stream) => {
    if (waiting.length === 0) setTimeout(look, partMilliseconds);
    waiting.push({ command, looks: 0 });
    return send(command, stream);
  };
  redis.sendCommand = sendInTime;
}

/**
 * Keeps a second error of one socket from ending the process. ioredis listens for one alone, and a TLS socket that tries
 * several addresses of a name, as Node's do, can have one for each.
 */
export function bearRepeatedErrors(redis: Redis): Redis {
  const bear = (): void => {
    const stream = redis.stream as Redis['stream'] | undefined; // there is none where the try has failed by then
    stream?.on('error', () => undefined);
  };
  // The socket is made in the turn that begins with `connecting`, or, behind a Sentinel, at the latest by `connect`.
  return redis.on('connecting', () => setImmediate(bear)).on('connect', bear);
}

/** Opened anew, a connection leads to the new master. Not at each refusal: its name may still lead to the old one. */
function leavingWhatRefusesWrites(): (error: Error) => boolean {
  let leftAt = -Infinity;
  return ({ message }) => {
    if (!refusesWrites.test(message) || performance.now() - leftAt < leavingMilliseconds) return false;
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
    protocol: 2 as const, // ioredis drops RESP3's invalidation notices without a word
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    // Where the other end is gone without a word, the kernel sends again for a quarter of an hour before it says so.
    socketTimeout: Math.max(longestSilenceMilliseconds, address.commandTimeoutMilliseconds),
    connectTimeout: connectTimeoutMilliseconds,
    sentinelCommandTimeout: connectTimeoutMilliseconds, // one that hangs would otherwise be waited for without end
    retryStrategy: retryAfter,
    disableClientInfo: true,
  };
}

/** The server's name is checked against its certificate; behind Sentinel it is the sentinels' word, in a Cluster the nodes'. */
function tlsOf({ ca }: RedisAddress) {
  return { rejectUnauthorized: true, ...(ca === null ? {} : { ca }) };
}

function sentinelOptionsOf(
  address: RedisAddress,
): Pick<Where, 'sentinelUsername' | 'sentinelPassword' | 'sentinelTLS'> {
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
