import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { Heartbeat } from '../../src/adapters/redis/gateway/heartbeat.js';
import { Outage } from '../../src/adapters/redis/outage.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { seededRecords } from './key-store-contract.js';

type State = readonly [string | null, string | null];

const state: State = [JSON.stringify(seededRecords['mg:meta']), '1'];

function openHeartbeat(t: { teardown(handler: () => unknown): void }, witness: 'none' | 'masters' | 'others' = 'none') {
  const store = {
    ...{ hearing: true, epoch: 0, servers: null as readonly string[] | null, passedMilliseconds: 0 },
    answer: (): Promise<State> => Promise.resolve(state),
    confirm: (): Promise<boolean> => Promise.resolve(true),
    checkParts: (): Promise<void> => Promise.resolve(),
    catchUp: (): Promise<void> => Promise.resolve(),
    grant: null as string | null,
  };
  const nothing = () => Promise.resolve();
  const heartbeat = new Heartbeat({
    link: {
      get connected() {
        return store.hearing;
      },
      get epoch() {
        return store.epoch;
      },
      get servers() {
        return store.servers;
      },
      policies: [],
      partLost: null,
      readState: () => store.answer(),
      acknowledge: () => Promise.resolve(store.grant),
      witness: () => witness,
      confirm: () => store.confirm(),
      write: nothing,
      checkParts: () => store.checkParts(),
      catchUp: () => store.catchUp(),
      ...{ remove: nothing, close: () => undefined },
      read: () => Promise.resolve(null),
    },
    outage: new Outage({ onLost: () => undefined, onFound: () => undefined }),
    names: new RecordNames('mg:'),
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() + store.passedMilliseconds },
    maxStaleMilliseconds: 30_000,
    ...{ onCaughtUp: () => undefined, onForget: () => undefined, onNotice: () => undefined, holds: () => true },
    inactive: () => [],
  });
  /** The store does not reply until the returned function is called. */
  const silence = (): (() => void) => {
    let speak = (): void => undefined;
    const later = new Promise<State>((resolve) => {
      speak = () => {
        resolve(state);
      };
    });
    store.answer = () => later;
    return () => {
      store.answer = () => Promise.resolve(state);
      speak();
    };
  };
  t.teardown(() => heartbeat.close());
  return { heartbeat, store, silence };
}

async function settlesSoon(promise: Promise<void>): Promise<boolean> {
  return Promise.race([promise.then(() => true), wait(200, false)]);
}

t.test('a request does not wait for a heartbeat while the store is known to be down', async (t) => {
  const { heartbeat, store, silence } = openHeartbeat(t);
  await heartbeat.beat();
  store.hearing = false;
  store.answer = () => Promise.reject(new Error('a part is silent'));
  await heartbeat.beat();
  const speak = silence();
  const beat = heartbeat.beat();
  t.ok(await settlesSoon(heartbeat.catchUp()), 'cached records are served at once');
  speak();
  await beat;
});

t.test('the first requests wait for the first heartbeat, and those after a pause for the next one', async (t) => {
  const { heartbeat, silence } = openHeartbeat(t);
  for (const when of ['first', 'next']) {
    const speak = silence();
    void heartbeat.beat();
    const caughtUp = heartbeat.catchUp();
    t.notOk(await settlesSoon(caughtUp), when);
    speak();
    await caughtUp;
    t.ok(heartbeat.standing.fresh, when);
  }
});

/** The state of a store in a generation, on one server with a replica that may replace it. */
function stateOf(generation: string, server: string): State {
  return [JSON.stringify({ ...(seededRecords['mg:meta'] as object), generation, servers: [server], replicas: 1 }), '1'];
}

/**
 * An enrolled gateway whose master was replaced two seconds after the last proof. Its lease ended with the generation, so only
 * the sentinels or replicas show that the new server is the master; they have not replied yet.
 */
async function failOver(t: { teardown(handler: () => unknown): void }) {
  const { heartbeat, store } = openHeartbeat(t, 'others');
  store.servers = ['one'];
  store.answer = () => Promise.resolve(stateOf('first', 'one'));
  store.grant = JSON.stringify({ generation: 'first', beat: 1, lifetimeMilliseconds: 31_000 });
  await heartbeat.beat();
  const isEnrolled = heartbeat.standing.lease.enrolled;
  Object.assign(store, { epoch: 1, servers: ['two'], passedMilliseconds: 2_000 });
  store.answer = () => Promise.resolve(stateOf('second', 'two'));
  let reply: (isMaster: boolean) => void = () => undefined;
  const asked = new Promise<boolean>((resolve) => (reply = resolve));
  const isAsked = new Promise<void>((resolve) => {
    store.confirm = () => {
      resolve();
      return asked;
    };
  });
  const beat = heartbeat.beat();
  await isAsked;
  return { standing: heartbeat.standing, isEnrolled, reply, beat };
}

t.test('a failover refuses no request while the witnesses of the new master have not replied', async (t) => {
  const { standing, isEnrolled, reply, beat } = await failOver(t);
  t.ok(isEnrolled);
  t.equal(standing.reason, null, 'requests are not refused');
  t.ok(standing.isJudgedSoon, 'they wait');
  t.equal(standing.proof, null, 'nothing is read from the new server meanwhile');
  reply(true);
  await beat;
  t.equal(standing.reason, null);
  t.not(standing.proof, null, 'the new server is read');
});

t.test('a new server is not read if its witnesses do not confirm that it is the master', async (t) => {
  const { standing, reply, beat } = await failOver(t);
  reply(false);
  await beat;
  t.equal(standing.proof, null);
  t.match(standing.reason, /^cannot verify that this Redis server is still the master/);
  t.notOk(standing.isJudgedSoon, 'requests do not wait any longer');
});

for (const [title, step, mayRead] of [
  ['a Cluster whose slots take two seconds to check is read: its masters confirm afterwards', 'checkParts', true],
  ['a Cluster whose masters take two seconds to confirm their slot map is not read', 'catchUp', false],
] as const) {
  t.test(title, async (t) => {
    const { heartbeat, store } = openHeartbeat(t, 'masters');
    store.servers = ['one'];
    store.answer = () => Promise.resolve(stateOf('first', 'one'));
    store[step] = () => {
      store.passedMilliseconds += 2_000;
      return Promise.resolve();
    };
    await heartbeat.beat();
    t.equal(heartbeat.standing.proof !== null, mayRead);
    t.equal(heartbeat.standing.reason === null, mayRead);
  });
}
