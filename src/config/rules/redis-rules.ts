import type { Rule, RuleProblem } from '../config-error.js';
import type { Config } from '../schema.js';

/** Rules about combinations of the Redis options. */
export const redisRules: readonly Rule[] = [
  redisUrlIsUrl,
  caFileRequiresTls,
  sentinelsAreNamed,
  sentinelUserHasPassword,
  clusterHasNoConflicts,
  sharedRateIsCounted,
];

/**
 * Requires a Redis URL that names its database only as `/number`. Other notations, such as `?db=7`, would select
 * database 0, which could belong to another deployment.
 */
function redisUrlIsUrl({ keyStore }: Config): RuleProblem[] {
  const { url } = keyStore.redis;
  const parsed = URL.canParse(url) ? new URL(url) : null;
  const path = 'keyStore.redis.url';
  if (parsed === null || !/^\/?\d{0,4}$/.test(parsed.pathname)) {
    return [
      {
        path,
        message:
          'expected redis://host:port or rediss://host:port, optionally followed by a database number, as in redis://host:6379/7',
      },
    ];
  }
  // Check the text: `search` and `hash` of the parsed URL are empty if it ends with a single ? or #.
  if (!/[?#]/.test(url)) return [];
  return [{ path, message: 'contains ? or #; select a database by its number only, as in redis://host:6379/7' }];
}

/**
 * Rejects a CA file without TLS. It would suggest protection, although the traffic to Redis is readable on the network.
 */
function caFileRequiresTls({ keyStore }: Config): RuleProblem[] {
  const { url, caFile, sentinel } = keyStore.redis;
  if (caFile === null || url.startsWith('rediss:') || sentinel?.tls === true) return [];
  const message =
    'has no effect without TLS; expected null, or a rediss:// URL in keyStore.redis.url (also with sentinel or cluster)';
  return [{ path: 'keyStore.redis.caFile', message, others: ['keyStore.redis.url'] }];
}

function sentinelsAreNamed({ keyStore }: Config): RuleProblem[] {
  if (keyStore.redis.sentinel?.servers.length !== 0) return [];
  return [{ path: 'keyStore.redis.sentinel.servers', message: 'expected at least one sentinel' }];
}

/**
 * Requires a password if a Sentinel user is configured. The AUTH command takes a user name only together with a
 * password, so the client would not authenticate without one.
 */
function sentinelUserHasPassword({ keyStore }: Config): RuleProblem[] {
  const { sentinel } = keyStore.redis;
  if ((sentinel?.username ?? null) === null || sentinel?.passwordFile !== null) return [];
  const path = 'keyStore.redis.sentinel.passwordFile';
  const message = 'expected a file with the password, because keyStore.redis.sentinel.username is set';
  return [{ path, message, others: ['keyStore.redis.sentinel.username'] }];
}

function clusterHasNoConflicts({ keyStore }: Config): RuleProblem[] {
  const { cluster, sentinel, url, prefix } = keyStore.redis;
  if (cluster === null) return [];
  const path = 'keyStore.redis.cluster';
  const problems: RuleProblem[] = [];
  if (cluster.length === 0) problems.push({ path, message: 'expected at least one node, or null' });
  if (sentinel !== null) {
    const message = 'cannot be combined with keyStore.redis.sentinel; expected one of them to be null';
    problems.push({ path, message, others: ['keyStore.redis.sentinel'] });
  }
  if (URL.canParse(url) && !['', '/', '/0'].includes(new URL(url).pathname)) {
    const message = 'selects a database, but a Redis Cluster has only database 0; expected no database';
    problems.push({ path: 'keyStore.redis.url', message, others: [path] });
  }
  if (/[{}]/.test(prefix)) {
    const message = 'contains braces, which would put every record into one slot of the Cluster; expected no braces';
    problems.push({ path: 'keyStore.redis.prefix', message, others: [path] });
  }
  return problems;
}

/**
 * Rejects a shared rate limit without a rate or without Redis: it would have no effect, but the operator would rely on
 * it.
 */
function sharedRateIsCounted({ rateLimit: { shared, requestsPerSecond }, keyStore }: Config): RuleProblem[] {
  if (!shared) return [];
  const path = 'rateLimit.shared';
  const problems: RuleProblem[] = [];
  if (requestsPerSecond === null) {
    const message = 'has no effect without rateLimit.requestsPerSecond; expected false, or a number in that option';
    problems.push({ path, message, others: ['rateLimit.requestsPerSecond'] });
  }
  if (keyStore.kind === 'memory') {
    const message = 'requires Redis, but keyStore.kind is memory; expected false, or keyStore.kind: redis';
    problems.push({ path, message, others: ['keyStore.kind'] });
  }
  return problems;
}
