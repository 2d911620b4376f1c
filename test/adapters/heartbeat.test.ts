import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { Heartbeat } from '../../src/adapters/redis/gateway/heartbeat.js';
import { Outage } from '../../src/adapters/redis/outage.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { seededRecords } from './key-store-contract.js';

type State = readonly [string | null, string | null];

const state: State = [JSON.stringify(seededRecords['mg:meta']), '1'];

function openHeartbeat(t: { teardown(handler: () => unknown): void }) {
  const store = { hearing: true, answer: (): Promise<State> => Promise.resolve(state) };
  const nothing = () => Promise.resolve();
  const heartbeat = new Heartbeat({
    link: {
      get hearing() {
        return store.hearing;
      },
      epoch: 0,
      policies: [],
      partLost: null,
      readState: () => store.answer(),
      servers: null,
      acknowledge: () => Promise.resolve(null),
      witness: () => 'none',
      confirm: () => Promise.resolve(true),
      write: nothing,
      ...{ catchUp: nothing, remove: nothing, close: () => undefined },
      read: () => Promise.resolve(null),
    },
    outage: new Outage({ onLost: () => undefined, onFound: () => undefined }),
    names: new RecordNames('mg:'),
    identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
    clock: { now: () => Date.now() },
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
