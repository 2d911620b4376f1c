import { Redis } from 'ioredis';

/** Where Redis is and who we are to it. */
export interface RedisAddress {
  /** `redis://host:port/db` or, with TLS, `rediss://…`. */
  readonly url: string;
  /** Servers of a Sentinel set-up; null: the URL names the server itself. */
  readonly sentinels: readonly { readonly host: string; readonly port: number }[] | null;
  /** The name that the sentinels know the master by. */
  readonly masterName: string;
  /** User of an access control list; null: the default user. */
  readonly username: string | null;
  readonly password: string | null;
  /** PEM of the authority that signed its certificate; null: those that Node trusts. */
  readonly ca: Buffer | null;
  readonly commandTimeoutMilliseconds: number;
}

const connectTimeoutMilliseconds = 1_000;
const longestRetryMilliseconds = 1_000;

/**
 * Opens a connection that fails fast and comes back by itself: with ioredis's defaults one GET waits for more than a
 * minute while Redis is down. Nothing is queued while it is away, and nothing is sent twice.
 * @param onError told of each failure of the connection; the command that met it is rejected as well
 */
export function connectRedis(address: RedisAddress, onError: (error: Error) => void): Redis {
  const url = new URL(address.url);
  const secure = url.protocol === 'rediss:';
  // The server's name is checked against its certificate; behind Sentinel it is the sentinels' word.
  const tls = secure ? { rejectUnauthorized: true, ...(address.ca === null ? {} : { ca: address.ca }) } : undefined;
  return new Redis({
    ...(address.sentinels === null
      ? { host: hostOf(url), port: Number(url.port || 6379) }
      : { sentinels: [...address.sentinels], name: address.masterName, enableTLSForSentinelMode: secure }),
    db: Number(url.pathname.slice(1) || 0),
    ...(address.username === null ? {} : { username: address.username }),
    ...(address.password === null ? {} : { password: address.password }),
    ...(tls === undefined ? {} : { tls }),
    protocol: 2, // ioredis drops RESP3's invalidation notices without a word
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    commandTimeout: address.commandTimeoutMilliseconds,
    connectTimeout: connectTimeoutMilliseconds,
    retryStrategy: (attempt) => Math.min(attempt * 50, longestRetryMilliseconds),
    disableClientInfo: true,
  }).on('error', onError);
}

function hostOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, '$1');
}
