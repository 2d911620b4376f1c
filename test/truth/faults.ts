import { setTimeout as wait } from 'node:timers/promises';
import type { Random } from '../fuzz/random.js';
import type { Deployment, Party } from './deployment.js';
import type { Passage } from './relay.js';
import type { History } from './recorder.js';
import { restartWith, takeSnapshot, type DataServer, type Topology } from './stores.js';

/** A fault that was begun. */
export interface Injected {
  readonly what: string;
  /** The gateways that are now cut off from every Redis server. */
  readonly isolated?: readonly Party[];
  /** Takes its cause away. */
  readonly end: () => Promise<unknown>;
}

/** A kind of fault. */
export interface FaultKind {
  readonly topologies?: readonly Topology[];
  /** Whether it needs registries on a database server. */
  readonly needsPostgres?: true;
  /** How long it lasts at least. */
  readonly holdMilliseconds?: number;
  readonly inject: (deployment: Deployment, random: Random, history: History) => Promise<Injected>;
}

const nothingToEnd = (): Promise<void> => Promise.resolve();
/** What is copied lies so far back, at most, when it is put back. */
const mostCopyAge = 1500;
const mostDelay = 250;
const mildDelay = 60;

/** What may be done to a deployment, by name. */
export const faultKinds: Readonly<Record<string, FaultKind>> = {
  'kill-registry': { inject: ({ registries }, random) => killed(random.pick(registries)) },
  'kill-gateway': { inject: ({ gateways }, random) => killed(random.pick(gateways)) },
  'stop-registry': { inject: ({ registries }, random) => stopped(random.pick(registries)) },
  'stop-gateway': { inject: ({ gateways }, random) => stopped(random.pick(gateways)) },
  'stop-redis': {
    holdMilliseconds: 2500,
    inject: async ({ store }, random) => {
      const server = pickFrom(await store.masters(), random);
      server?.signal('SIGSTOP');
      return { what: `stop ${nameOf(server)}`, end: () => Promise.resolve(server?.signal('SIGCONT')) };
    },
  },
  'kill-redis': {
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
    inject: async ({ store }, random) => {
      const servers = someOf(await store.masters(), random);
      for (const { client } of servers) await client.flushall();
      return { what: `flush ${namesOf(servers)}`, end: nothingToEnd };
    },
  },
  'delete-gateways': { inject: ({ store }) => deleted(store.masters(), 'mg:gateway:*') },
  'delete-grants': { inject: ({ store }) => deleted(store.masters(), 'mg:grant:*') },
  cut: { inject: (deployment, random) => closed(deployment, random, 'cut') },
  'half-open': { inject: (deployment, random) => closed(deployment, random, random.pick(['lost', 'held'])) },
  delay: {
    inject: ({ gateways, registries }, random) => {
      const parties = someOf([...gateways, ...registries], random);
      const milliseconds = 1 + random.below(random.oneIn(2) ? mildDelay : mostDelay);
      for (const { network } of parties) network.delay(milliseconds);
      return Promise.resolve({
        what: `delay ${namesOf(parties)} by ${milliseconds} ms`,
        end: async () => {
          for (const { network } of parties) network.delay(0);
          return Promise.resolve();
        },
      });
    },
  },
  'restore-sql': {
    inject: async ({ database, registries }, random, history) => {
      const pause = random.below(mostCopyAge);
      const isOld = random.oneIn(2);
      const former = isOld ? database.copied : null;
      const copy = former ?? (await database.copy());
      await wait(pause);
      const age = Math.round(performance.now() - copy.copyEnded);
      await Promise.all(registries.map((registry) => registry.kill()));
      const begun = performance.now();
      await database.putBack();
      history.add({ kind: 'restore', ...copy, begun, ended: performance.now() });
      return {
        what: `put the database back by ${age} ms`,
        end: () => Promise.all(registries.map((registry) => registry.start())),
      };
    },
  },
  'cut-sql': {
    needsPostgres: true,
    inject: ({ database: { relay } }, random) => {
      const passage = random.pick<Passage>(['cut', 'lost', 'held']);
      relay?.set(passage);
      return Promise.resolve({
        what: `${passage} PostgreSQL`,
        end: async () => {
          relay?.set('open');
          return Promise.resolve();
        },
      });
    },
  },
  failover: {
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

async function killed(party: Party): Promise<Injected> {
  await party.kill();
  return { what: `kill ${party.name}`, end: () => party.start() };
}

function stopped(party: Party): Promise<Injected> {
  party.signal('SIGSTOP');
  return Promise.resolve({
    what: `stop ${party.name}`,
    end: async () => {
      party.signal('SIGCONT');
      return Promise.resolve();
    },
  });
}

/** Closes the way of gateways to Redis, and sometimes that of a registry. */
function closed({ gateways, registries }: Deployment, random: Random, passage: Passage): Promise<Injected> {
  const parties = random.oneIn(4) ? [random.pick(registries)] : someOf(gateways, random);
  for (const { network } of parties) network.set(passage);
  return Promise.resolve({
    what: `${passage} ${namesOf(parties)}`,
    isolated: parties.filter((party) => gateways.includes(party)),
    end: async () => {
      for (const { network } of parties) network.set('open');
      return Promise.resolve();
    },
  });
}

async function deleted(masters: Promise<readonly DataServer[]>, pattern: string): Promise<Injected> {
  let count = 0;
  for (const { client } of await masters) {
    for (const name of await client.keys(pattern)) count += await client.del(name);
  }
  return { what: `delete ${count} of ${pattern}`, end: nothingToEnd };
}

/** One of them, or all. */
function someOf<T>(choices: readonly T[], random: Random): readonly T[] {
  if (choices.length === 0 || random.oneIn(3)) return choices;
  return [random.pick(choices)];
}

function pickFrom<T>(choices: readonly T[], random: Random): T | null {
  return choices.length === 0 ? null : random.pick(choices);
}

interface Named {
  readonly name: string;
}

function namesOf(these: readonly Named[]): string {
  return these.length === 0 ? 'nothing' : these.map(({ name }) => name).join(' and ');
}

function nameOf(server: Named | null): string {
  return namesOf(server === null ? [] : [server]);
}
