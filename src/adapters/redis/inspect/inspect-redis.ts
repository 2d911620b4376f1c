import { Redis } from 'ioredis';
import { timeOutCommands } from '../command-timeout.js';
import { ignoreRepeatedErrors, isSecure } from '../connection.js';
import type { HostAndPort, RedisAddress } from '../connection.js';
import { explainConnection, explainRefusal } from './failure.js';
import type { Fault, InspectedServer } from './failure.js';
import { missingRights } from './rights.js';
import type { RedisUse } from './rights.js';

/**
 * A problem that was found. `error`: the gateway or registry cannot use Redis. `warning`: a feature fails, or a risk
 * exists.
 */
export interface Finding extends Fault {
  readonly severity: 'error' | 'warning';
}

const connectTimeoutMilliseconds = 5_000;
const commandTimeoutMilliseconds = 1_500;

/** The address of the Redis server to inspect, and the features for which the Redis user needs rights. */
export interface Inspection {
  readonly address: RedisAddress;
  readonly prefix: string;
  readonly use: Omit<RedisUse, 'isCluster' | 'asksReplicas'>;
}

/**
 * Connects as a gateway or a registry does, and checks for mistakes in the configuration. Changes nothing in Redis.
 * Never rejects.
 */
export async function inspectRedis(inspection: Inspection): Promise<Finding[]> {
  const { address } = inspection;
  if (address.sentinels !== null) return inspectBehindSentinels(inspection, address.sentinels);
  if (address.cluster !== null) {
    const each = await Promise.all(
      address.cluster.map((at) => inspectServer(inspection, at, 'keyStore.redis.cluster')),
    );
    // Report each problem once: the nodes of a Cluster usually lack the same rights.
    return each.flat().filter(({ message }, index, all) => all.findIndex((one) => one.message === message) === index);
  }
  const { hostname, port } = new URL(address.url);
  const at = { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || 6379) };
  return inspectServer(inspection, at, 'keyStore.redis.url');
}

async function inspectBehindSentinels(inspection: Inspection, sentinels: readonly HostAndPort[]): Promise<Finding[]> {
  const results = await Promise.all(sentinels.map((at) => inspectSentinel(inspection.address, at)));
  const findings = results.flatMap(({ finding }) => (finding === null ? [] : [finding]));
  const master = results.find(({ master }) => master !== null)?.master ?? null;
  if (master === null) return findings;
  const ofMaster = await inspectServer(inspection, master, 'keyStore.redis.sentinel');
  return [...findings.map((finding) => ({ ...finding, severity: 'warning' as const })), ...ofMaster];
}

interface SentinelResult {
  readonly master: HostAndPort | null;
  readonly finding: Finding | null;
}

async function inspectSentinel(address: RedisAddress, at: HostAndPort): Promise<SentinelResult> {
  const option = 'keyStore.redis.sentinel';
  const { username = null, password = null, isSecure: secure = isSecure(address) } = address.sentinelAccess ?? {};
  const options = { place: `${option}.servers`, password: `${option}.passwordFile`, secure: `${option}.tls` };
  const whose: InspectedServer = { what: `the sentinel at ${hostPortOf(at)}`, at, isSecure: secure, options };
  const visit = await connected(whose, { username, password, ca: address.ca }, async (redis) => {
    const named = (await redis.call('SENTINEL', 'get-master-addr-by-name', address.masterName)) as string[] | null;
    if (named !== null) return { master: { host: named[0] ?? '', port: Number(named[1]) }, finding: null };
    const masters = (await redis.call('SENTINEL', 'masters')) as string[][];
    const known = masters.map((fields) => fields[fields.indexOf('name') + 1]).join(', ');
    const message = `${whose.what} monitors no master "${address.masterName}"${known === '' ? '' : `; it monitors: ${known}`}`;
    return { master: null, finding: { severity: 'error' as const, option: `${option}.masterName`, message } };
  });
  return 'fault' in visit ? { master: null, finding: { severity: 'error', ...visit.fault } } : visit.result;
}

async function inspectServer(inspection: Inspection, at: HostAndPort, place: string): Promise<Finding[]> {
  const { address, prefix, use } = inspection;
  const options = { place, password: 'keyStore.redis.passwordFile', secure: 'keyStore.redis.url' };
  const whose: InspectedServer = { what: `Redis at ${hostPortOf(at)}`, at, isSecure: isSecure(address), options };
  const visit = await connected(whose, address, async (redis, warning) => {
    const { faults, hasReplicas } = await checkInfo(redis, address, whose);
    if (faults.length > 0) return faults;
    const isCluster = address.cluster !== null;
    const asksReplicas = !isCluster && address.sentinels === null && (hasReplicas || (address.replicas ?? 0) > 0);
    const within = { ...use, isCluster, asksReplicas };
    // A second connection for SUBSCRIBE, because a subscribed connection accepts no other command.
    const rights = await connected(whose, address, (listening) => missingRights(redis, listening, prefix, within));
    if ('fault' in rights) return [{ severity: 'error' as const, ...rights.fault }];
    const missing = rights.result;
    const user = address.username ?? 'default';
    const lacks = `the user "${user}" of Redis lacks rights that the ${use.part} needs. Grant them: ACL SETUSER ${user} ${missing.join(' ')}`;
    const option = address.username === null ? options.password : 'keyStore.redis.username';
    return [
      ...(warning === null ? [] : [{ severity: 'warning' as const, ...warning }]),
      ...(missing.length === 0 ? [] : [{ severity: 'warning' as const, option, message: lacks }]),
    ];
  });
  return 'fault' in visit ? [{ severity: 'error', ...visit.fault }] : visit.result;
}

/**
 * Checks the mode, role, version and database of the server with INFO and SELECT. Returns the problems that it found,
 * and whether the server has replicas.
 */
async function checkInfo(redis: Redis, address: RedisAddress, { what, options: { place } }: InspectedServer) {
  const fault = (option: string, message: string) => ({
    faults: [{ severity: 'error' as const, option, message }],
    hasReplicas: false,
  });
  const database = Number(new URL(address.url).pathname.slice(1) || 0);
  const info = await redis.info().catch(() => '');
  const valueOf = (name: string): string | null => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1] ?? null;
  const mode = valueOf('redis_mode');
  if (mode === 'sentinel') return fault(place, `${what} is a sentinel: name it in keyStore.redis.sentinel.servers`);
  if (mode === 'cluster' && address.cluster === null)
    return fault(place, `${what} is a node of a Cluster: name some of its nodes in keyStore.redis.cluster`);
  if (mode === 'standalone' && address.cluster !== null)
    return fault(place, `${what} is a single server, not a Cluster node: name it in keyStore.redis.url`);
  if (valueOf('role') === 'slave' && address.cluster === null)
    return fault(
      place,
      `${what} is a replica and refuses writes: configure the address of the master, or of its sentinels`,
    );
  const version = valueOf('redis_version');
  if (version !== null && Number.parseInt(version, 10) < 6)
    return fault(place, `${what} is version ${version}, which cannot send invalidation messages: use 6.0 or newer`);
  try {
    if (database !== 0) await redis.select(database);
  } catch (error) {
    const { message } = error as Error;
    if (message.includes('out of range'))
      return fault('keyStore.redis.url', `${what} has no database ${database}: use a lower number, or omit the number`);
    if (message.startsWith('NOPERM'))
      return fault(
        'keyStore.redis.url',
        `the user is not allowed to use database ${database} of ${what}: grant the user the right +select, or omit the database`,
      );
  }
  return { faults: [], hasReplicas: Number(valueOf('connected_slaves') ?? 0) > 0 };
}

type Credentials = Pick<RedisAddress, 'username' | 'password' | 'ca'>;
type Visit<Result> = { readonly result: Result } | { readonly fault: Fault };

/** Connects, authenticates and calls `act`. Returns the result of `act`, or why Redis could not be used. */
async function connected<Result>(
  whose: InspectedServer,
  { username, password, ca }: Credentials,
  act: (redis: Redis, warning: Fault | null) => Promise<Result>,
): Promise<Visit<Result>> {
  const redis = new Redis({
    ...{
      ...whose.at,
      lazyConnect: true,
      retryStrategy: () => null,
      enableReadyCheck: false,
      enableOfflineQueue: false,
    },
    ...{ connectTimeout: connectTimeoutMilliseconds, protocol: 2, disableClientInfo: true },
    ...(whose.isSecure ? { tls: { rejectUnauthorized: true, ...(ca === null ? {} : { ca }) } } : {}),
  });
  timeOutCommands(redis, commandTimeoutMilliseconds);
  let cause: unknown = null;
  ignoreRepeatedErrors(redis).on('error', (error) => (cause ??= error));
  let warning: Fault | null = null;
  try {
    await redis.connect();
    try {
      if (password !== null) await redis.call('AUTH', ...(username === null ? [] : [username]), password);
    } catch (error) {
      const refusal = explainRefusal(error, whose, true);
      if (refusal === null) throw error;
      if (!(error as Error).message.includes('without any password configured')) return { fault: refusal };
      warning = refusal;
    }
    try {
      await redis.ping();
    } catch (error) {
      const refusal = explainRefusal(error, whose, password !== null);
      if (refusal !== null) return { fault: refusal };
      // Ignore the refusal of PING if the user lacks only +ping, or if the server cannot save data to disk (MISCONF).
      if (!/^(?:NOPERM|MISCONF)/.test((error as Error).message)) throw error;
    }
    return { result: await act(redis, warning) };
  } catch (error) {
    return { fault: await explainConnection(cause ?? error, whose) };
  } finally {
    redis.disconnect();
  }
}

function hostPortOf({ host, port }: HostAndPort): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}
