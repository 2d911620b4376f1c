import { setTimeout as wait } from 'node:timers/promises';
import { nameOf, namesOf, nothingToEnd, pickFrom, someOf, type FaultKind, type Injected } from './fault-kind.js';
import { restartWith, takeSnapshot, type DataServer } from './stores.js';

/** Maximum age in milliseconds of a copy when it is restored. */
export const mostCopyAge = 1500;

/** The possible faults of Redis, by name. */
export const redisFaults: Readonly<Record<string, FaultKind>> = {
  'stop-redis': {
    // A failover makes a replica the master, and a replica may lack changes.
    losesData: ['sentinel', 'cluster'],
    holdMilliseconds: 2500,
    inject: async ({ store }, random) => {
      const server = pickFrom(await store.masters(), random);
      server?.signal('SIGSTOP');
      return { what: `stop ${nameOf(server)}`, end: () => Promise.resolve(server?.signal('SIGCONT')) };
    },
  },
  'kill-redis': {
    losesData: true,
    inject: async ({ store }, random) => {
      const server = pickFrom(await store.masters(), random);
      const isKept = random.oneIn(2);
      if (isKept) await server?.client.save();
      await server?.kill();
      return {
        what: `kill ${nameOf(server)}, ${isKept ? 'which comes back with its data' : 'which comes back empty'}`,
        end: async () => server === null || restartWith(server, isKept ? server.file : null),
      };
    },
  },
  'restart-redis': {
    losesData: true,
    inject: async ({ store }, random) => {
      const servers = someOf(await store.masters(), random);
      const isKept = random.oneIn(2);
      for (const server of servers) {
        if (isKept) await server.client.save();
        await restartWith(server, isKept ? server.file : null);
      }
      return { what: `restart ${namesOf(servers)} ${isKept ? 'with data' : 'empty'}`, end: nothingToEnd };
    },
  },
  'old-snapshot': {
    losesData: true,
    inject: async ({ store }, random) => {
      const servers = someOf(await store.masters(), random);
      const copies = await Promise.all(servers.map(takeSnapshot));
      const age = random.below(mostCopyAge);
      await wait(age);
      for (const [index, server] of servers.entries()) await restartWith(server, copies[index] ?? null);
      return { what: `put ${namesOf(servers)} back by ${age} ms`, end: nothingToEnd };
    },
  },
  flush: {
    losesData: true,
    inject: async ({ store }, random) => {
      const servers = someOf(await store.masters(), random);
      for (const { client } of servers) await client.flushall();
      return { what: `flush ${namesOf(servers)}`, end: nothingToEnd };
    },
  },
  'delete-gateways': { inject: ({ store }) => deleted(store.masters(), 'mg:gateway:*') },
  'delete-grants': { inject: ({ store }) => deleted(store.masters(), 'mg:grant:*') },
  failover: {
    losesData: true,
    topologies: ['sentinel', 'cluster'],
    holdMilliseconds: 1500,
    inject: async ({ store }, random) => {
      const [sentinel] = store.sentinels;
      if (sentinel !== undefined) await sentinel.client.call('SENTINEL', 'FAILOVER', 'mymaster').catch(() => undefined);
      else {
        const masters = await store.masters();
        const replica = pickFrom(
          store.data.filter((server) => !masters.includes(server)),
          random,
        );
        await replica?.client.call('CLUSTER', 'FAILOVER').catch(() => undefined);
      }
      return { what: 'planned failover', end: nothingToEnd };
    },
  },
  split: {
    losesData: true,
    topologies: ['sentinel'],
    holdMilliseconds: 5000,
    inject: async ({ store, gateways, registries }, random) => {
      const master = pickFrom(await store.masters(), random);
      if (master === null) return { what: 'nothing: there is no master', end: nothingToEnd };
      const others = store.reachable.filter(({ port }) => port !== master.port);
      const left = someOf(gateways, random);
      master.peers?.set('cut');
      for (const { network } of left) network.set('cut', others);
      for (const { network } of registries) network.set('cut', [master]);
      return {
        what: `leave ${namesOf(left)} alone with ${master.name}`,
        end: async () => {
          master.peers?.set('open');
          for (const { network } of [...left, ...registries]) network.set('open');
          return Promise.resolve();
        },
      };
    },
  },
};

async function deleted(masters: Promise<readonly DataServer[]>, pattern: string): Promise<Injected> {
  let count = 0;
  for (const { client } of await masters) {
    for (const name of await client.keys(pattern)) count += await client.del(name);
  }
  return { what: `delete ${count} of ${pattern}`, end: nothingToEnd };
}
