import type { Redis } from 'ioredis';

/** What a user of Redis is for. */
export interface RedisUse {
  readonly part: 'gateway' | 'registry';
  readonly isCluster: boolean;
  /** Whether the gateway has to ask replicas, because no sentinel tells of another master. */
  readonly asksReplicas: boolean;
  /** Whether the gateway reads records before it is asked for them. */
  readonly preloads: boolean;
  /** Whether merchants' requests are counted for all gateways together. */
  readonly countsRequests: boolean;
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

/** The commands that a user needs, as an ACL names them, besides `subscribe`: docs/records.md has the same list. */
export function neededCommands(use: RedisUse): string[] {
  const own =
    use.part === 'registry'
      ? [...registryRights, ...registryClientRights, ...(use.isCluster ? ['zadd'] : [])]
      : [
          ...gatewayRights,
          ...(use.preloads ? ['mget', 'scan'] : []),
          ...(use.asksReplicas ? ['wait'] : []),
          ...(use.countsRequests ? ['evalsha', 'time'] : []),
        ];
  return [...new Set([...own, ...(use.isCluster ? clusterRights : [])])];
}

/**
 * Commands that Redis refuses where the right is missing, and that change nothing where it is not: Redis looks at rights first. A
 * text after the command is an argument, `$` the name of a record that nobody has.
 */
const probes: Readonly<Record<string, string>> = {
  get: 'GET $',
  mget: 'MGET $',
  scan: 'SCAN 0 COUNT 1',
  set: 'SET $ x NX XX', // contradicts itself: a syntax error
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
  asking: 'ASKING',
  'client|id': 'CLIENT ID',
  'client|tracking': 'CLIENT TRACKING OFF',
  'cluster|info': 'CLUSTER INFO',
  'cluster|nodes': 'CLUSTER NODES',
  'cluster|slots': 'CLUSTER SLOTS',
  exec: 'EXEC', // without MULTI: an error
  multi: 'MULTI',
};

/**
 * The rights that the user of two connections lacks, as an ACL names them: commands, keys and the channel of notices. Afterwards the
 * connections are good for nothing.
 */
export async function missingRights(redis: Redis, listening: Redis, prefix: string, use: RedisUse): Promise<string[]> {
  const missing = new Set<string>();
  // MULTI comes last: what came behind it would be queued.
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

/** What was refused for want of a right; null where nothing was. */
async function refusalOf(act: () => Promise<unknown>): Promise<'command' | 'key' | 'channel' | null> {
  try {
    await act();
    return null;
  } catch (error) {
    const { message } = error as Error;
    // Where EXEC is refused, Redis puts the reason behind EXECABORT.
    if (!message.includes('NOPERM ')) return null;
    if (/access (?:a|one of the) channel/.test(message)) return 'channel';
    return /access (?:a|one of the) key/.test(message) ? 'key' : 'command';
  }
}
