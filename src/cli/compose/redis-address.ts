import type { RedisAddress, SentinelAccess } from '../../adapters/redis/connection.js';
import type { OutageEvents } from '../../adapters/redis/outage.js';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile, alwaysSecret } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
import type { Logger } from '../../telemetry/logger.js';

const maxPasswordBytes = 4096;
const maxPemBytes = 1024 * 1024;

/**
 * Returns the connection settings of Redis, with the secrets and the CA from their files.
 * @throws OperatorError
 */
export async function redisAddressOf(redis: Config['keyStore']['redis']): Promise<RedisAddress> {
  const { url, sentinel, cluster, username, passwordFile, caFile, commandTimeoutMilliseconds, replicas } = redis;
  return {
    url,
    sentinels: sentinel === null ? null : sentinel.servers.map(serverOf),
    sentinelAccess: sentinel === null ? null : await sentinelAccessOf(sentinel, url),
    masterName: sentinel?.masterName ?? '',
    cluster: cluster === null ? null : cluster.map(serverOf),
    username,
    password: await readPassword(passwordFile, 'The password of Redis'),
    ca: caFile === null ? null : await readOperatorFile(caFile, 'The CA certificate', maxPemBytes),
    commandTimeoutMilliseconds,
    replicas,
  };
}

type Sentinel = NonNullable<Config['keyStore']['redis']['sentinel']>;

async function sentinelAccessOf({ username, passwordFile, tls }: Sentinel, url: string): Promise<SentinelAccess> {
  const password = await readPassword(passwordFile, 'The password of the sentinels');
  return { username, password, isSecure: tls ?? url.startsWith('rediss:') };
}

async function readPassword(file: string | null, what: string): Promise<string | null> {
  if (file === null) return null;
  const contents = await readOperatorFile(file, what, maxPasswordBytes, alwaysSecret);
  const password = contents.toString('utf8').replace(/\r?\n$/, '');
  if (password === '') throw new OperatorError(`${what} ${file} is empty: write the password to this file.`);
  return password;
}

function serverOf(text: string): { host: string; port: number } {
  const colon = text.lastIndexOf(':');
  return { host: text.slice(0, colon).replace(/^\[(.*)\]$/, '$1'), port: Number(text.slice(colon + 1)) };
}

/**
 * Returns callbacks that log the start and the end of a Redis outage. Each callback is called once per outage, even
 * if many attempts fail during the outage.
 */
export function redisOutageLog(log: Logger): OutageEvents {
  return {
    onLost: (reason) => {
      log.warn({ reason: reason.message }, 'Redis unavailable; retrying');
    },
    onFound: (lostForMilliseconds) => {
      log.info({ lostForMilliseconds }, 'Redis available again');
    },
  };
}

/**
 * Returns a callback that warns if the `maxmemory-policy` lets Redis evict records that the gateways need. It warns
 * again only after the policy has changed.
 */
export function evictionLog(log: Logger): (policies: readonly string[]) => void {
  let lastWarned = '';
  return (policies) => {
    if (policies.length === 0) return; // empty while the policy is still unknown
    const wrong = policies.filter((policy) => policy !== 'noeviction').join(', ');
    if (wrong !== '' && wrong !== lastWarned)
      log.warn(
        { maxmemoryPolicy: wrong },
        'Redis may evict records or acknowledgements: set maxmemory-policy noeviction',
      );
    lastWarned = wrong;
  };
}
