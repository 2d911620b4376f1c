import t from 'tap';
import { openRecordsStore } from '../../src/adapters/redis/registry/open-records-store.js';
import type { HostAndPort } from '../../src/adapters/redis/connection.js';
import { startCluster, until } from '../adapters/redis-cluster.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import type { Teardown } from '../adapters/redis-server.js';

const name = 'mg:key:1';
const credentials = { sentinels: null, masterName: '', username: null, password: null, ca: null };

/** Where a registry writes, and what is there of the record. */
interface Place {
  readonly url: string;
  readonly cluster: readonly HostAndPort[] | null;
  readonly read: () => Promise<string | null>;
  readonly damage: (text: string) => Promise<unknown>;
  readonly makeHash: () => Promise<unknown>;
}

const places: Record<string, (t: Teardown) => Promise<Place>> = {
  'one server': async (t) => {
    const { url, client } = await startRedis(t);
    const makeHash = (): Promise<unknown> => client.pipeline().del(name).hset(name, 'status', 'ACTIVE').exec();
    return { url, cluster: null, read: () => client.get(name), damage: (text) => client.set(name, text), makeHash };
  },
  'a Cluster': async (t) => {
    const cluster = await startCluster(t, { replicas: false });
    const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
    const damage = (text: string): Promise<unknown> => cluster.set(name, text);
    const makeHash = async (): Promise<unknown> => {
      const { client } = await cluster.ownerOf(name);
      return client.pipeline().del(name).hset(name, 'status', 'ACTIVE').exec();
    };
    return { url: 'redis://cluster', cluster: nodes, read: () => cluster.get(name), damage, makeHash };
  },
};

// A registry gives a silent connection up and goes on with another one. When the network heals, the kernel still sends what was
// written to the first: it replaced the revocation that had been confirmed meanwhile, and the key worked again.
for (const [what, start] of Object.entries(places)) {
  t.test(`on ${what} a write that arrives late does not replace a later one`, { skip: withoutRedis }, async (t) => {
    const { url, cluster, read, damage, makeHash } = await start(t);
    const address = { ...credentials, url, cluster, commandTimeoutMilliseconds: 5_000 };
    const store = openRecordsStore(address, 'mg:', { onLost: () => undefined, onFound: () => undefined });
    t.teardown(() => store.close());
    await until(async () => (await store.look()).meta === null, 'the store can be asked');
    await store.begin();
    const write = (status: string, revision: number, change: number) =>
      store.write([{ name: 'key:1', value: { status, revision } }], change, 'g');
    const status = async (): Promise<unknown> => (JSON.parse((await read()) ?? '{}') as { status?: string }).status;

    await write('ACTIVE', 5, 5);
    await write('REVOKED', 7, 7);
    t.equal(await write('ACTIVE', 5, 6), 7);
    t.equal(await status(), 'REVOKED');
    await write('REVOKED AGAIN', 7, 9);
    t.equal(await status(), 'REVOKED AGAIN', 'a later change of a record that stays as it is');
    await write('PUT BACK', 12, 9);
    t.equal(await status(), 'PUT BACK', 'what is written once more under the number that it was put back with');
    const rewrite = (value: object | null, revision: number) =>
      store.rewrite([{ name: 'key:1', value }], revision, 'g');
    t.equal(await rewrite({ status: 'AS IT WAS', revision: 3 }, 11), 12);
    t.equal(await rewrite(null, 11), 12);
    t.equal(await status(), 'PUT BACK', 'a page of everything that arrives when the key was changed again');
    t.equal(await rewrite({ status: 'AS THE DATABASE HAS IT', revision: 3 }, 12), 0);
    t.equal(await status(), 'AS THE DATABASE HAS IT', 'everything anew');
    for (const damaged of [
      '',
      '{',
      '[]',
      '7',
      '{"revision":"x"}',
      '{"revision":null}',
      '{"revision":10.5}',
      '{"revision":"99"}',
      `{"revision":${2 ** 50}}`,
    ]) {
      await damage(damaged);
      await write('WHOLE', 10, 10);
      t.equal(await status(), 'WHOLE', damaged);
    }
    await makeHash();
    await write('WHOLE', 10, 10);
    t.equal(await status(), 'WHOLE', 'what is no text');
    await store.write([{ name: 'key:1', value: null }], 9, 'g');
    t.not(await read(), null, 'a removal that arrives late');
    await store.write([{ name: 'key:1', value: null }], 11, 'g');
    t.equal(await read(), null);
  });
}
