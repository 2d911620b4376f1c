import type { Redis } from 'ioredis';

/** The features for which a Redis user needs rights. */
export interface RedisUse {
  readonly part: 'gateway' | 'registry';
  readonly isCluster: boolean;
  /**
   * Whether the gateway needs the command WAIT. Without Sentinel, the gateway uses WAIT to check with the server's
   * replicas that the server is still the master.
   */
  readonly asksReplicas: boolean;
  /** Whether the gateway loads records into its cache before requests need them. */
  readonly preloads: boolean;
  /** Whether all gateways share one rate limit per merchant. */
  readonly countsRequests: boolean;
  /** Whether gateways send messages to the registry through Redis. */
  readonly usesChannel: boolean;
}

const channel = '__redis__:invalidate';
const gatewayRights = [
  'get',
  'set',
  'del',
  'eval',
  'pexpire',
  'ping',
  'info',
  'select',
  'client|id',
  'client|tracking',
];
const registryRights = ['get', 'set', 'del', 'eval', 'multi', 'exec', 'scan', 'ping', 'info', 'select'];
const registryClientRights = ['client|id', 'client|tracking'];
const clusterRights = ['mget', 'zrange', 'asking', 'cluster|info', 'cluster|nodes', 'cluster|slots'];

/**
 * Returns the commands that a user needs, in ACL syntax, in addition to `subscribe`. docs/records.md contains the same
 * list.
 */
export function neededCommands(use: RedisUse): string[] {
  const own =
    use.part === 'registry'
      ? [
          ...registryRights,
          ...registryClientRights,
          ...(use.isCluster ? ['zadd'] : []),
          ...(use.usesChannel ? ['xrange', 'xdel'] : []),
        ]
      : [
          ...gatewayRights,
          ...(use.preloads ? ['mget', 'scan'] : []),
          ...(use.asksReplicas ? ['wait'] : []),
          ...(use.countsRequests ? ['evalsha', 'time'] : []),
          ...(use.usesChannel ? ['xadd', 'xlen', 'xrange'] : []),
        ];
  return [...new Set([...own, ...(use.isCluster ? clusterRights : [])])];
}

/**
 * For each right, a command that tests whether Redis permits it. Redis checks rights before arguments, so a command
 * with invalid arguments suffices. Even with the right, the command changes no data. `$` stands for a Redis key that
 * does not exist.
 */
const probes: Readonly<Record<string, string>> = {
  get: 'GET $',
  mget: 'MGET $',
  scan: 'SCAN 0 COUNT 1',
  set: 'SET $ x NX XX', // a syntax error, because NX and XX contradict each other
  del: 'DEL $',
  wait: 'WAIT 0 1',
  eval: 'EVAL return(1) 1 $',
  evalsha: `EVALSHA ${'0'.repeat(40)} 1 $`,
  pexpire: 'PEXPIRE $ 1',
  ping: 'PING',
  info: 'INFO server',
  select: 'SELECT 0',
  time: 'TIME',
  zrange: 'ZRANGE $ 0 0',
  zadd: 'ZADD $ XX 1 x',
  xadd: 'XADD $ NOMKSTREAM * x x',
  xlen: 'XLEN $',
  xrange: 'XRANGE $ - + COUNT 1',
  xdel: 'XDEL $ 0-1',
  asking: 'ASKING',
  'client|id': 'CLIENT ID',
  'client|tracking': 'CLIENT TRACKING OFF',
  'cluster|info': 'CLUSTER INFO',
  'cluster|nodes': 'CLUSTER NODES',
  'cluster|slots': 'CLUSTER SLOTS',
  exec: 'EXEC', // an error, because there is no MULTI before it
  multi: 'MULTI',
};

/**
 * Lists the rights that the user lacks, in ACL syntax: for commands, keys and the channel of invalidation messages.
 * Afterwards the caller must close both connections: `redis` may be in a MULTI, and `listening` may be subscribed.
 */
export async function missingRights(redis: Redis, listening: Redis, prefix: string, use: RedisUse): Promise<string[]> {
  const missing = new Set<string>();
  // Test MULTI last, because Redis queues all commands after it.
  const commands = neededCommands(use).toSorted((one, other) => Number(one === 'multi') - Number(other === 'multi'));
  for (const command of commands) {
    const [name = '', ...args] = (probes[command] ?? '').replaceAll('$', `${prefix}self-check`).split(' ');
    const refused = await refusalOf(() => redis.call(name, ...args));
    if (refused !== null) missing.add(refused === 'key' ? `~${prefix}*` : `+${command}`);
  }
  const refused = await refusalOf(() => listening.subscribe(channel));
  if (refused !== null) missing.add(refused === 'channel' ? `&${channel}` : '+subscribe');
  return [...missing];
}

/** Returns the kind of right that the user lacks for the call; null if no right is missing. */
async function refusalOf(act: () => Promise<unknown>): Promise<'command' | 'key' | 'channel' | null> {
  try {
    await act();
    return null;
  } catch (error) {
    const { message } = error as Error;
    // If the user lacks the right to EXEC, the error begins with EXECABORT; NOPERM follows later in the text.
    if (!message.includes('NOPERM ')) return null;
    if (/access (?:a|one of the) channel/.test(message)) return 'channel';
    return /access (?:a|one of the) key/.test(message) ? 'key' : 'command';
  }
}
