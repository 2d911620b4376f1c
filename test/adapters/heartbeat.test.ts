import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { Heartbeat } from '../../src/adapters/redis/gateway/heartbeat.js';
import { Outage } from '../../src/adapters/redis/outage.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { noSeals, SealCheck } from '../../src/adapters/redis/seal.js';
import { seededRecords } from './key-store-contract.js';

type State = readonly [string | null, string | null];

const state: State = [JSON.stringify(seededRecords['mg:meta']), '1'];

function openHeartbeat(t: { teardown(handler: () => unknown): void }, witness: 'none' | 'masters' | 'others' = 'none') {
  const store = {
    ...{ connected: true, epoch: 0, servers: null as readonly string[] | null, passedMilliseconds: 0 },
    readState: (): Promise<State> => Promise.resolve(state),
    confirm: (): Promise<boolean> => Promise.resolve(true),
    checkParts: (): Promise<void> => Promise.resolve(),
    catchUp: (): Promise<void> => Promise.resolve(),
    ...{ grant: null as string | null, refusal: null as Error | null, timesForgotten: 0, timesFollowed: 0 },
  };
  const nothing = () => Promise.resolve();
  const heartbeat = new Heartbeat({
    link: {
      get connected() {
        return store.connected;
      },
      get epoch() {
        return store.epoch;
      },
      get servers() {
        return store.servers;
      },
      policies: [],
      partLost: null,
      readState: () => store.readState(),
      acknowledge: () => (store.refusal === null ? Promise.resolve(store.grant) : Promise.reject(store.refusal)),
      witness: () => witness,
      confirm: () => store.confirm(),
      followSentinels: () => {
        store.timesFollowed += 1;
        return nothing();
      },
      write: nothing,
      checkParts: () => store.checkParts(),
      catchUp: () => store.catchUp(),
      ...{ remove: nothing, close: () => undefined },
      read: () => Promise.resolve(null),
    },
    outage: new Outage({ onLost: () => undefined, onFound: () => undefined }),
    names: new RecordNames('mg:'),
    seals: new SealCheck(noSeals, () => undefined),
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() + store.passedMilliseconds },
    maxStaleMilliseconds: 30_000,
    ...{ onCaughtUp: () => undefined, onNotice: () => undefined, holds: () => true },
    onForget: () => {
      store.timesForgotten += 1;
    },
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
    store.readState = () => later;
    return () => {
      store.readState = () => Promise.resolve(state);
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
  store.connected = false;
  store.readState = () => Promise.reject(new Error('a part is silent'));
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

// Regression: each look-up waited for the running heartbeat and one more. That took seconds and could not help.
t.test('a request does not wait for heartbeats that take too long to make the cache fresh', async (t) => {
  const { heartbeat, store, silence } = openHeartbeat(t);
  const slow = <Reply>(reply: Reply) => {
    store.passedMilliseconds += 800;
    return Promise.resolve(reply);
  };
  store.readState = () => slow(state);
  store.catchUp = () => slow(undefined);
  await heartbeat.beat();
  t.notOk(heartbeat.standing.fresh);
  t.not(heartbeat.standing.proof, null);
  const speak = silence();
  const beat = heartbeat.beat();
  t.ok(await settlesSoon(heartbeat.catchUp()), 'Redis is read at once');
  store.catchUp = () => Promise.resolve();
  speak();
  await beat;
  await heartbeat.beat();
  t.ok(heartbeat.standing.fresh);
  const again = silence();
  store.passedMilliseconds += 2_000;
  const caughtUp = heartbeat.catchUp();
  t.notOk(await settlesSoon(caughtUp), 'a fast heartbeat is worth the wait');
  again();
  await caughtUp;
  t.ok(heartbeat.standing.fresh);
});

/**
 * The state that a store reports: its generation (one unbroken history of changes), its one server, and one replica
 * that may replace the server.
 */
function stateOf(generation: string, server: string): State {
  return [JSON.stringify({ ...(seededRecords['mg:meta'] as object), generation, servers: [server], replicas: 1 }), '1'];
}

/**
 * A gateway that the registry has enrolled: its lease permits the use of cached records. Two seconds after the last
 * proof that its server is the master, another server takes over. The lease ends, because the new server has records of
 * another generation. So only the witnesses (sentinels or replicas) can show that the new server is the master. They
 * have not replied yet.
 */
async function failOver(t: { teardown(handler: () => unknown): void }) {
  const { heartbeat, store } = openHeartbeat(t, 'others');
  store.servers = ['one'];
  store.readState = () => Promise.resolve(stateOf('first', 'one'));
  store.grant = JSON.stringify({ generation: 'first', beat: 1, lifetimeMilliseconds: 31_000 });
  await heartbeat.beat();
  const isEnrolled = heartbeat.standing.lease.enrolled;
  Object.assign(store, { epoch: 1, servers: ['two'], passedMilliseconds: 2_000 });
  store.readState = () => Promise.resolve(stateOf('second', 'two'));
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

/**
 * A gateway that the registry enrolled on the former master. It now reads the new master, because sentinels or replicas
 * confirm that this server is the master.
 */
async function readNewMaster(t: { teardown(handler: () => unknown): void }) {
  const { heartbeat, store } = openHeartbeat(t, 'others');
  store.servers = ['one'];
  store.readState = () => Promise.resolve(stateOf('first', 'one'));
  store.grant = JSON.stringify({ generation: 'first', beat: 1, lifetimeMilliseconds: 31_000 });
  await heartbeat.beat();
  Object.assign(store, { epoch: 1, servers: ['two'] });
  store.readState = () => Promise.resolve(stateOf('second', 'two'));
  await heartbeat.beat();
  /** Connects to the former master, which is isolated: nothing confirms that it is the master. */
  const reconnect = async (): Promise<void> => {
    Object.assign(store, { epoch: 2, servers: ['one'] });
    store.readState = () => Promise.resolve(stateOf('first', 'one'));
    store.confirm = () => Promise.resolve(false);
    await heartbeat.beat();
  };
  return { heartbeat, store, reconnect };
}

// Regression: a gateway that returned to the former master took the proof about the new master for a proof about the
// former one. It also relied on the lease that the registry had once granted on the former master. So it accepted keys
// whose revocation it had acknowledged.
t.test('a gateway that returns to a former master does not read it', async (t) => {
  const { heartbeat, store, reconnect } = await readNewMaster(t);
  const { standing } = heartbeat;
  t.not(standing.proof, null, 'the new master is read');
  t.notOk(standing.lease.enrolled);
  await reconnect();
  t.equal(standing.proof, null);
  t.match(standing.reason, /^cannot verify that this Redis server is still the master/);
  t.notOk(standing.lease.enrolled, 'the grant names a heartbeat from before the failover');
  await heartbeat.beat();
  t.equal(standing.proof, null);
  t.notOk(standing.lease.enrolled);
  store.confirm = () => Promise.resolve(true);
  await heartbeat.beat();
  t.not(standing.proof, null, 'it is read once a majority names it');
  store.grant = JSON.stringify({ generation: 'first', beat: standing.lease.beats, lifetimeMilliseconds: 31_000 });
  await heartbeat.beat();
  t.ok(standing.lease.enrolled, 'a new grant counts');
});

t.test('an enrolled gateway that returns to a former master serves its cache for a limited time', async (t) => {
  const { heartbeat, store, reconnect } = await readNewMaster(t);
  const { standing } = heartbeat;
  store.grant = JSON.stringify({ generation: 'second', beat: standing.lease.beats, lifetimeMilliseconds: 31_000 });
  await heartbeat.beat();
  t.equal(standing.lease.generation, 'second');
  const { timesForgotten, timesFollowed } = store;
  await reconnect();
  t.equal(standing.proof, null, 'the former master is not read');
  t.match(standing.state.reason, 'earlier generation');
  t.equal(standing.lease.generation, 'second');
  t.equal(store.timesForgotten, timesForgotten, 'the cached records are kept');
  t.equal(standing.reason, null, 'and served');
  t.notOk(standing.fresh, 'as stale');
  t.ok(store.timesFollowed > timesFollowed, 'the sentinels are asked for the master');
  store.passedMilliseconds += 30_001;
  await heartbeat.beat();
  t.notOk(standing.lease.enrolled);
  t.ok(store.timesForgotten > timesForgotten, 'the cached records are dropped');
  t.equal(standing.proof, null);
  t.match(standing.reason, /^cannot verify that this Redis server is still the master/);
});

for (const [title, step, mayRead] of [
  ['a Cluster whose slots take two seconds to check is read: its masters confirm afterwards', 'checkParts', true],
  ['a Cluster whose masters take two seconds to confirm their slot map is not read', 'catchUp', false],
] as const) {
  t.test(title, async (t) => {
    const { heartbeat, store } = openHeartbeat(t, 'masters');
    store.servers = ['one'];
    store.readState = () => Promise.resolve(stateOf('first', 'one'));
    store[step] = () => {
      store.passedMilliseconds += 2_000;
      return Promise.resolve();
    };
    await heartbeat.beat();
    t.equal(heartbeat.standing.proof !== null, mayRead);
    t.equal(heartbeat.standing.reason === null, mayRead);
  });
}

const outOfMemory = Object.assign(new Error('OOM command not allowed'), { name: 'ReplyError' });

for (const witness of ['masters', 'others'] as const) {
  t.test(`a full store is read without a lease while its witnesses (${witness}) name the master`, async (t) => {
    const { heartbeat, store } = openHeartbeat(t, witness);
    const { standing } = heartbeat;
    store.servers = ['one'];
    store.readState = () => Promise.resolve(stateOf('first', 'one'));
    store.refusal = outOfMemory;
    for (let beat = 0; beat < 3; beat += 1) {
      await heartbeat.beat();
      t.not(standing.proof, null);
      t.equal(standing.reason, null);
      t.notOk(standing.lease.enrolled);
      t.notOk(standing.fresh, 'nothing is cached');
      store.passedMilliseconds += 2_000;
      t.equal(standing.proof, null, 'each proof is short');
    }
    t.match(standing.reason, 'OOM command not allowed');
  });

  t.test(`a full store (${witness}) does not prolong the lease of the cache`, async (t) => {
    const { heartbeat, store } = openHeartbeat(t, witness);
    const { standing } = heartbeat;
    store.servers = ['one'];
    store.readState = () => Promise.resolve(stateOf('first', 'one'));
    store.grant = JSON.stringify({ generation: 'first', beat: 1, lifetimeMilliseconds: 31_000 });
    await heartbeat.beat();
    t.ok(standing.lease.enrolled);
    store.refusal = outOfMemory;
    store.passedMilliseconds += 29_000;
    await heartbeat.beat();
    t.ok(standing.lease.enrolled);
    t.ok(standing.sinceKnownTrue >= 29_000, 'since the last acknowledgement');
    store.timesForgotten = 0;
    store.passedMilliseconds += 1_500;
    await heartbeat.beat();
    t.notOk(standing.lease.enrolled);
    t.equal(store.timesForgotten, 1, 'the cache is dropped');
    t.not(standing.proof, null, 'from now on the store is read');
    store.refusal = null;
    await heartbeat.beat();
    t.notOk(standing.lease.enrolled, 'the grant is too old: the registry may have removed the gateway');
  });
}

t.test('a full store is not read if its witnesses do not name it as the master', async (t) => {
  const { heartbeat, store } = openHeartbeat(t, 'others');
  store.servers = ['one'];
  store.readState = () => Promise.resolve(stateOf('first', 'one'));
  store.refusal = outOfMemory;
  store.confirm = () => Promise.resolve(false);
  await heartbeat.beat();
  t.equal(heartbeat.standing.proof, null);
  t.match(heartbeat.standing.reason, 'OOM command not allowed');
});
