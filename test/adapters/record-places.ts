import type { HostAndPort } from '../../src/adapters/redis/connection.js';
import { allowStalls, startCluster } from './redis-cluster.js';
import { type RedisServer, startRedis, type Teardown } from './redis-server.js';

/** A store of records, and the server that has each record. */
export interface Place {
  readonly url: string;
  readonly cluster: readonly HostAndPort[] | null;
  readonly ownerOf: (name: string) => Promise<RedisServer>;
}

/** For each kind of store, a function that starts one. */
export const places: Record<string, (t: Teardown) => Promise<Place>> = {
  'one server': async (t) => {
    const server = await startRedis(t);
    return { url: server.url, cluster: null, ownerOf: () => Promise.resolve(server) };
  },
  'a Cluster': async (t) => {
    const cluster = await startCluster(t, { replicas: false });
    await allowStalls(cluster);
    const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
    return { url: 'redis://cluster', cluster: nodes, ownerOf: (name) => cluster.ownerOf(name) };
  },
};
