import type { Rule, RuleProblem } from './config-error.js';
import type { Config } from './schema.js';

/** What is wrong between the options of Redis. */
export const redisRules: readonly Rule[] = [
  redisUrlIsUrl,
  authorityIsForRediss,
  sentinelsAreNamed,
  sentinelUserHasPassword,
  clusterStandsAlone,
  sharedRateIsCounted,
];

/** A database that is named in any other way, as `?db=7`, would be database 0: perhaps that of another deployment. */
function redisUrlIsUrl({ keyStore }: Config): RuleProblem[] {
  const { url } = keyStore.redis;
  const parsed = URL.canParse(url) ? new URL(url) : null;
  const path = 'keyStore.redis.url';
  if (parsed === null || !/^\/?\d{0,4}$/.test(parsed.pathname)) {
    return [{ path, message: 'expected redis://host:port or rediss://host:port, and /number if need be' }];
  }
  // A single ? or # is no part of what was parsed.
  if (!/[?#]/.test(url)) return [];
  return [{ path, message: 'expected nothing behind the database, which is named as in redis://host:6379/7' }];
}

/** A file without effect would look like protection: what goes to Redis would be read by anybody on the way. */
function authorityIsForRediss({ keyStore }: Config): RuleProblem[] {
  const { url, caFile, sentinel } = keyStore.redis;
  if (caFile === null || url.startsWith('rediss:') || sentinel?.tls === true) return [];
  const message = 'is for rediss://, with sentinel and cluster too; expected null, or rediss:// in keyStore.redis.url';
  return [{ path: 'keyStore.redis.caFile', message, others: ['keyStore.redis.url'] }];
}

function sentinelsAreNamed({ keyStore }: Config): RuleProblem[] {
  if (keyStore.redis.sentinel?.servers.length !== 0) return [];
  return [{ path: 'keyStore.redis.sentinel.servers', message: 'expected at least one sentinel' }];
}

/** A user is named by AUTH, with a password; without one nothing would be sent. */
function sentinelUserHasPassword({ keyStore }: Config): RuleProblem[] {
  const { sentinel } = keyStore.redis;
  if ((sentinel?.username ?? null) === null || sentinel?.passwordFile !== null) return [];
  const path = 'keyStore.redis.sentinel.passwordFile';
  const message = 'expected the file of the password of keyStore.redis.sentinel.username';
  return [{ path, message, others: ['keyStore.redis.sentinel.username'] }];
}

function clusterStandsAlone({ keyStore }: Config): RuleProblem[] {
  const { cluster, sentinel, url, prefix } = keyStore.redis;
  if (cluster === null) return [];
  const path = 'keyStore.redis.cluster';
  const problems: RuleProblem[] = [];
  if (cluster.length === 0) problems.push({ path, message: 'expected at least one node, or null' });
  if (sentinel !== null) {
    const message = 'is for another kind of Redis than keyStore.redis.sentinel; expected one of them to be null';
    problems.push({ path, message, others: ['keyStore.redis.sentinel'] });
  }
  if (URL.canParse(url) && !['', '/', '/0'].includes(new URL(url).pathname)) {
    const message = 'selects a database, and a Cluster has but one; expected none';
    problems.push({ path: 'keyStore.redis.url', message, others: [path] });
  }
  if (/[{}]/.test(prefix)) {
    const message = 'would put every record into one slot of the Cluster; expected no braces';
    problems.push({ path: 'keyStore.redis.prefix', message, others: [path] });
  }
  return problems;
}

/** Merchants would be taken to be limited together, and would not be. */
function sharedRateIsCounted({ rateLimit: { shared, requestsPerSecond }, keyStore }: Config): RuleProblem[] {
  if (!shared) return [];
  const path = 'rateLimit.shared';
  const problems: RuleProblem[] = [];
  if (requestsPerSecond === null) {
    const message = 'is without effect; expected false, or a number in rateLimit.requestsPerSecond';
    problems.push({ path, message, others: ['rateLimit.requestsPerSecond'] });
  }
  if (keyStore.kind === 'memory') {
    const message = 'counts in Redis, and there is none; expected false, or keyStore.kind: redis';
    problems.push({ path, message, others: ['keyStore.kind'] });
  }
  return problems;
}
