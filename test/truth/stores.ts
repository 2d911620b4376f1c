import { copyFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { startCluster, until } from '../adapters/redis-cluster.js';
import { startRedis, type RedisServer, type Teardown } from '../adapters/redis-server.js';
import type { Network, Reachable } from './network.js';
import { Relay } from './relay.js';

export const topologies = ['single', 'sentinel', 'cluster'] as const;
/** The topologies of Redis. */
export type Topology = (typeof topologies)[number];

/** A Redis server with data. */
export interface DataServer extends RedisServer, Reachable {
  readonly name: string;
  /** The file from which the server loads its data when it starts. */
  readonly file: string;
  /** The relay between this server and the other servers; null if that path cannot be cut. */
  readonly peers: Relay | null;
}

/** Redis as a whole, as configured in gateways and registries. */
export interface Store {
  readonly data: readonly DataServer[];
  readonly sentinels: readonly (RedisServer & Reachable)[];
  /** The servers that processes reach through relays. */
  readonly reachable: readonly Reachable[];
  /** The fields of `keyStore.redis` for connecting to it. */
  configOf(network: Pick<Network, 'portOf'>): object;
  /** How many masters there are while no fault lasts. */
  readonly masterCount: number;
  /** The responding servers that report themselves as masters. */
  masters(): Promise<DataServer[]>;
  /** Resolves when every server runs and each replica follows its master. */
  settled(): Promise<void>;
}

/** Starts Redis on free ports. */
export async function startStore(t: Teardown, topology: Topology): Promise<Store> {
  if (topology === 'sentinel') return startSentinel(t);
  if (topology === 'cluster') return startClusterStore(t);
  const server = await startRedis(t);
  const single = await dataServer(server, 'redis', server.port, null);
  return {
    data: [single],
    sentinels: [],
    reachable: [single],
    configOf: (network) => ({ url: `redis://127.0.0.1:${network.portOf(single)}` }),
    masterCount: 1,
    masters: () => mastersOf([single]),
    settled: () => until(async () => (await mastersOf([single])).length === 1, 'Redis answers'),
  };
}

const replicaCount = 2;
const sentinelCount = 3;

/**
 * Starts one master, two replicas and three sentinels.
 * @param isCuttable whether a relay stands in front of each server, so that the server can be cut off from its peers
 */
export async function startSentinel(t: Teardown, isCuttable = true): Promise<Store> {
  const data: DataServer[] = [];
  for (let index = 0; index <= replicaCount; index += 1) {
    let port = 0;
    const peers = isCuttable ? await Relay.open(t, () => port) : null;
    const [master] = data;
    const server = await startRedis(t, [
      ...(peers === null ? [] : ['replica-announce-ip 127.0.0.1', `replica-announce-port ${peers.port}`]),
      ...['repl-diskless-sync-delay 0', 'repl-ping-replica-period 1', 'repl-timeout 5'],
      ...(master === undefined ? [] : [`replicaof 127.0.0.1 ${master.announced}`]),
    ]);
    ({ port } = server);
    data.push(await dataServer(server, `redis-${index + 1}`, peers?.port ?? port, peers));
  }
  const sentinels = await Promise.all(
    Array.from({ length: sentinelCount }, async () => {
      const server = await startRedis(
        t,
        [
          `sentinel monitor mymaster 127.0.0.1 ${data[0]?.announced ?? 0} 2`,
          ...['sentinel down-after-milliseconds mymaster 1000', 'sentinel failover-timeout mymaster 3000'],
        ],
        ['--sentinel'],
      );
      return { ...server, announced: server.port };
    }),
  );
  const settled = (): Promise<void> =>
    until(async () => {
      const known = await Promise.all(
        sentinels.map(async ({ client }) => {
          const others = (await client.call('SENTINEL', 'SENTINELS', 'mymaster')) as unknown[];
          const address = (await client.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'mymaster')) as string[];
          return others.length === sentinelCount - 1 ? address.join(':') : 'unknown';
        }),
      );
      const named = data.find(({ announced }) => known.every((address) => address === `127.0.0.1:${announced}`));
      const [role] = (await mastersOf(data)).length === 1 ? await mastersOf(data) : [];
      return named !== undefined && named === role && (await inStep(data)) === replicaCount;
    }, 'the sentinels name one master, which the replicas follow');
  await settled();
  return {
    data,
    sentinels,
    reachable: [...data, ...sentinels],
    configOf: (network) => {
      const servers = sentinels.map((sentinel) => `127.0.0.1:${network.portOf(sentinel)}`);
      return { sentinel: { masterName: 'mymaster', servers } };
    },
    masterCount: 1,
    masters: () => mastersOf(data),
    settled,
  };
}

async function startClusterStore(t: Teardown): Promise<Store> {
  const cluster = await startCluster(t);
  const data = await Promise.all(
    cluster.nodes.map((node, index) => dataServer(node, `redis-${index + 1}`, node.port, null)),
  );
  return {
    data,
    sentinels: [],
    reachable: data,
    configOf: (network) => ({ cluster: data.map((node) => `127.0.0.1:${network.portOf(node)}`) }),
    masterCount: data.length / 2, // the other nodes are their replicas
    masters: () => mastersOf(data),
    settled: () => cluster.settled(),
  };
}

async function mastersOf(data: readonly DataServer[]): Promise<DataServer[]> {
  const roles = await Promise.all(data.map(async (server) => (await infoOf(server)).includes('role:master')));
  return data.filter((_, index) => roles[index] === true);
}

async function inStep(data: readonly DataServer[]): Promise<number> {
  const infos = await Promise.all(data.map(infoOf));
  return infos.filter((info) => info.includes('master_link_status:up')).length;
}

/** A server's replication info; an empty text if it does not reply within 500 ms. */
async function infoOf({ client }: DataServer): Promise<string> {
  const late = new Promise<string>((resolve) => setTimeout(resolve, 500, ''));
  return Promise.race([client.info('replication').catch(() => ''), late]);
}

async function dataServer(
  server: RedisServer,
  name: string,
  announced: number,
  peers: Relay | null,
): Promise<DataServer> {
  const [, directory = ''] = await server.client.config('GET', 'dir');
  let isRunning = true;
  const kill = async (): Promise<void> => {
    isRunning = false;
    await server.kill();
  };
  // When two faults end, each of them may restart this server.
  const restart = async (): Promise<void> => {
    if (isRunning) return;
    isRunning = true;
    await server.restart();
  };
  return { ...server, kill, restart, name, announced, peers, file: path.join(directory, 'dump.rdb') };
}

/** Saves the current data of a server. @returns the file of the copy */
export async function takeSnapshot({ client, file }: DataServer): Promise<string> {
  await client.save();
  await copyFile(file, `${file}.copy`);
  return `${file}.copy`;
}

/** Kills a server like a crash and restarts it with the data of this file; null: empty. */
export async function restartWith(server: DataServer, file: string | null): Promise<void> {
  await server.kill();
  if (file === null) await rm(server.file, { force: true });
  else if (file !== server.file) await copyFile(file, server.file);
  await server.restart();
}
