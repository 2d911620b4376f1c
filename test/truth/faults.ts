import { setTimeout as wait } from 'node:timers/promises';
import type { Random } from '../fuzz/random.js';
import type { Deployment, Party } from './deployment.js';
import { namesOf, someOf, type FaultKind, type Injected } from './fault-kind.js';
import { mostCopyAge, redisFaults } from './redis-faults.js';
import type { Passage } from './relay.js';
import type { Topology } from './stores.js';

const mostDelay = 250;
const mildDelay = 60;
/** Maximum size of a mild wall-clock jump, in seconds. */
const mildJump = 40;
/** Maximum size of any other wall-clock jump, in seconds. */
const mostJump = 600;

/** The possible faults of a deployment, by name. */
export const faultKinds: Readonly<Record<string, FaultKind>> = {
  ...redisFaults,
  'kill-registry': { inject: ({ registries }, random) => killed(random.pick(registries)) },
  'kill-gateway': { inject: ({ gateways }, random) => killed(random.pick(gateways)) },
  'stop-registry': { inject: ({ registries }, random) => stopped(random.pick(registries)) },
  'stop-gateway': { inject: ({ gateways }, random) => stopped(random.pick(gateways)) },
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
  clock: {
    inject: ({ gateways, registries }, random) => {
      const parties = someOf([...gateways, ...registries], random);
      const seconds = 1 + random.below(random.oneIn(2) ? mildJump : mostJump);
      const isForward = random.oneIn(2);
      for (const party of parties) party.setClock((isForward ? seconds : -seconds) * 1000);
      return Promise.resolve({
        what: `set the clock of ${namesOf(parties)} ${isForward ? 'forward' : 'back'} by ${seconds} s`,
        end: async () => {
          for (const party of parties) party.setClock(0);
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
      history.add({ kind: 'restore', ...copy, begun, ended: performance.now(), storeKeptSince: Infinity });
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
};

/** Whether a fault may make Redis lose changes. */
export function losesData(name: string, topology: Topology): boolean {
  const loses = faultKinds[name]?.losesData ?? [];
  return loses === true || loses.includes(topology);
}

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

/** Closes the network path to Redis for gateways, or sometimes for a registry. */
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
