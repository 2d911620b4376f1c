import { setTimeout as wait } from 'node:timers/promises';
import { slotCount, slotOf } from '../../src/adapters/redis/cluster/hash-slots.js';
import { freePort, startRedis } from './redis-server.js';
import type { RedisServer, ServerCertificate, Teardown } from './redis-server.js';

/** A node of a test's Redis Cluster. */
export interface ClusterServer extends RedisServer {
  readonly id: string;
  readonly busPort: number;
}

/** A Redis Cluster for one test. */
export interface TestCluster {
  /** With replicas, the first half started as masters, the second half as their replicas in the same order. */
  readonly nodes: readonly ClusterServer[];
  /** The current master of a key's slot, according to the running nodes. */
  ownerOf(name: string): Promise<ClusterServer>;
  set(name: string, text: string): Promise<void>;
  get(name: string): Promise<string | null>;
  /** Resolves when every running node sees a complete Cluster, synchronized replicas and the same epoch. */
  settled(): Promise<void>;
}

/** Waits for a condition in other processes. */
export async function until(holds: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + 60_000;
  let reason: unknown = 'it was false';
  while (performance.now() < deadline) {
    try {
      if (await holds()) return;
    } catch (error) {
      reason = error;
    }
    await wait(10);
  }
  throw new Error(`never: ${what}: ${String(reason)}`);
}

/** Starts masters and optionally as many replicas, and waits until they form a Cluster. */
export async function startCluster(
  t: Teardown,
  {
    masters = 3,
    replicas = true,
    certificate = null as ServerCertificate | null,
    settings: more = [] as readonly string[],
  } = {},
): Promise<TestCluster> {
  const count = replicas ? masters * 2 : masters;
  const nodes = await Promise.all(
    Array.from({ length: count }, async () => {
      const busPort = await freePort();
      const settings = [
        ...['cluster-enabled yes', 'cluster-config-file nodes.txt', `cluster-port ${busPort}`],
        ...['cluster-node-timeout 1200', 'cluster-replica-validity-factor 0', 'cluster-allow-replica-migration no'],
        ...['repl-diskless-sync-delay 0', 'repl-ping-replica-period 1', 'cluster-replica-no-failover no'],
        ...more,
      ];
      const server = await startRedis(t, settings, [], certificate);
      const id = String(await server.client.call('CLUSTER', 'MYID'));
      return { ...server, id, busPort };
    }),
  );
  const [first] = nodes;
  if (first === undefined) throw new Error('there is no node');
  await Promise.all(
    nodes.slice(0, masters).map(async ({ client }, index) => {
      const from = Math.floor((slotCount * index) / masters);
      const to = Math.floor((slotCount * (index + 1)) / masters) - 1;
      await client.call('CLUSTER', 'SET-CONFIG-EPOCH', String(index + 1));
      await client.call('CLUSTER', 'ADDSLOTSRANGE', String(from), String(to));
    }),
  );
  for (const { port, busPort } of nodes.slice(1)) {
    await first.client.call('CLUSTER', 'MEET', '127.0.0.1', String(port), String(busPort));
  }
  const lines = async ({ client }: ClusterServer): Promise<string[]> =>
    String(await client.call('CLUSTER', 'NODES'))
      .trim()
      .split('\n');
  await until(
    async () =>
      (await Promise.all(nodes.map(lines))).every(
        (seen) => seen.length === count && !seen.join().includes('handshake'),
      ),
    'the nodes have met',
  );
  await Promise.all(
    nodes.slice(masters).map(({ client }, index) => client.call('CLUSTER', 'REPLICATE', nodes[index]?.id ?? '')),
  );

  const running = async (): Promise<ClusterServer[]> => {
    const responding = await Promise.all(nodes.map(async (node) => ((await isRunning(node)) ? [node] : [])));
    return responding.flat();
  };
  const settled = async (): Promise<void> => {
    await until(async () => {
      const live = await running();
      const infos = await Promise.all(live.map(async ({ client }) => String(await client.call('CLUSTER', 'INFO'))));
      const epochs = new Set(infos.map((info) => /cluster_current_epoch:(\d+)/.exec(info)?.[1]));
      const roles = await Promise.all(live.map(async ({ client }) => client.info('replication')));
      const inStep = roles.every((role) =>
        role.includes('role:master')
          ? !replicas || role.includes('state=online')
          : role.includes('master_link_status:up'),
      );
      return epochs.size === 1 && infos.every((info) => info.includes('cluster_state:ok')) && inStep;
    }, 'the Cluster is settled');
  };
  const findOwner = async (name: string): Promise<ClusterServer | null> => {
    const slot = slotOf(name);
    for (const node of await running()) {
      for (const line of await lines(node)) {
        const [id, , flags = '', , , , , , ...ranges] = line.split(' ');
        if (!flags.includes('myself') || !flags.includes('master')) continue;
        const owns = ranges.some((range) => {
          const [from = '', to = from] = range.split('-');
          return Number(from) <= slot && slot <= Number(to);
        });
        if (owns && id === node.id) return node;
      }
    }
    return null;
  };
  // A busy machine delays a node for longer than `running` waits, so one look is not enough.
  const ownerOf = async (name: string): Promise<ClusterServer> => {
    let owner: ClusterServer | null = null;
    await until(async () => (owner = await findOwner(name)) !== null, `a node owns ${name}`);
    return owner as unknown as ClusterServer;
  };
  await settled();
  return {
    nodes,
    ownerOf,
    settled,
    set: async (name, text) => {
      await (await ownerOf(name)).client.set(name, text);
    },
    get: async (name) => (await ownerOf(name)).client.get(name),
  };
}

/**
 * Lets nodes stall for up to 15 s before they count as failed. For tests without a failover: in a Cluster without
 * replicas, all nodes reject commands while one node counts as failed.
 */
export async function allowStalls({ nodes }: TestCluster): Promise<void> {
  // Not a setting of startCluster, because nodes with a long timeout exchange fewer messages and take longer to meet.
  await Promise.all(nodes.map(({ client }) => client.config('SET', 'cluster-node-timeout', '15000')));
}

async function isRunning({ client }: RedisServer): Promise<boolean> {
  const reply = client.ping().then(
    () => true,
    () => false,
  );
  return Promise.race([reply, wait(1_000, false, { ref: false })]);
}
