import { setImmediate as turn } from 'node:timers/promises';
import t from 'tap';
import { onEachDatabase } from '../database/each-database.js';
import { until } from './manual-time.js';
import { gateway } from './memory-records-store.js';
import { registryFixture, type NewKey } from './registry-fixture.js';
import { emptyList } from '../empty-list.js';

/** The longest pause of the registry between two queries for the acknowledgements of a change. */
const longestPauseMilliseconds = 100;

onEachDatabase('a revocation returns once every gateway of its environment has acknowledged it', async (t, url) => {
  const { call, createKey, createMerchant, store, time } = await registryFixture(t, url);
  const { id } = await createMerchant();
  store.live = ['a', 'b', 'c'].map((name) => gateway(name));
  store.live.push(gateway('sandbox', { environment: 'test', acknowledges: false }));
  const { keyId } = await createKey(id);
  t.match((await call('POST', `/keys/${keyId}/revoke`)).body.data, {
    propagation: { gateways: 3, confirmed: 3, pending: emptyList, milliseconds: 0 },
  });

  // One gateway acknowledges later.
  const second = await createKey(id);
  store.live = store.live.map((one) => (one.instanceId === 'b' ? { ...one, acknowledges: false } : one));
  let hasResponded = false;
  const asked = store.timesAsked;
  const revoked = call('POST', `/keys/${second.keyId}/revoke`).finally(() => (hasResponded = true));
  await until(() => store.revision === 5 && store.timesAsked >= asked + 2);
  for (let count = 0; count < 50; count += 1) await turn();
  t.notOk(hasResponded, 'the response is delayed');
  store.live = store.live.map((one) => (one.instanceId === 'b' ? { ...one, revision: 5 } : one));
  await until(() => {
    const next = time.untilNext;
    // Skips only pauses of the registry. While the registry reads acknowledgements, it has set no pause, and the next
    // timer could be its deadline.
    if (next !== null && next <= longestPauseMilliseconds) time.advance(next);
    return hasResponded;
  });
  const { status, body } = await revoked;
  t.equal(status, 200);
  const { milliseconds, ...propagation } = (body.data as NewKey).propagation as { milliseconds: number };
  t.same(propagation, { gateways: 3, confirmed: 3, pending: [] });
  t.ok(milliseconds <= 1000, `waited for ${milliseconds} ms`);

  store.live = store.live.map((one) => ({ ...one, acknowledges: true }));
  const both = await call('PATCH', `/merchants/${id}`, { body: { goLive: true } });
  t.match(both.body.data, { propagation: { gateways: 4, confirmed: 4 } }, 'a merchant belongs to both environments');
});

onEachDatabase('a change is in force as soon as the last acknowledgement arrives', async (t, url) => {
  const { call, createKey, createMerchant, store } = await registryFixture(t, url);
  const { id } = await createMerchant();
  const { keyId } = await createKey(id);
  store.live = [gateway('a', { revision: 2, acknowledges: false })];
  const revoked = call('POST', `/keys/${keyId}/revoke`);
  const asked = store.timesAsked;
  await until(() => store.revision === 3 && store.timesAsked >= asked + 2);
  store.live = [gateway('a', { revision: 3 })];
  store.acknowledged(); // without advancing the clock
  t.match((await revoked).body.data, { propagation: { gateways: 1, confirmed: 1, milliseconds: 0 } });
});

onEachDatabase(
  'gateways that do not acknowledge in time are listed with the time until they may use stale records',
  async (t, url) => {
    const { call, createKey, createMerchant, outwait, store, time } = await registryFixture(t, url);
    const { id } = await createMerchant();
    const { keyId } = await createKey(id);
    store.live = [gateway('a'), gateway('deaf', { revision: 2, acknowledges: false })];
    const response = await outwait(call('POST', `/keys/${keyId}/revoke`), 2);
    t.match(response, { status: 200, body: { success: true, data: { status: 'REVOKED' } } });
    t.same((response.body.data as NewKey).propagation, {
      ...{ gateways: 2, confirmed: 1, milliseconds: 2000 },
      pending: [{ instanceId: 'deaf', host: 'deaf.internal', staleUntil: new Date(time.now() + 31_000).toISOString() }],
    });
    const again = await outwait(call('POST', `/keys/${keyId}/revoke`), 2);
    t.match(
      again.body.data,
      { propagation: { confirmed: 1, pending: [{ instanceId: 'deaf' }] } },
      'repeating the request lists the gateway again',
    );
    store.live = store.live.map((one) => ({ ...one, acknowledges: true }));
    t.match((await call('POST', `/keys/${keyId}/revoke`)).body.data, {
      propagation: { confirmed: 2, pending: emptyList },
    });
  },
);

onEachDatabase('a change does not wait for a vanished gateway, and lists it', async (t, url) => {
  const { call, createKey, createMerchant, outwait, store, time } = await registryFixture(t, url);
  const { id } = await createMerchant();
  const keys = [await createKey(id), await createKey(id)];
  const vanished = gateway('vanished', { revision: 3, acknowledges: false, silentMilliseconds: 2000 });
  store.live = [gateway('a', { revision: 3 }), vanished];
  const staleUntil = new Date(time.now() + 29_000).toISOString();
  const pending = [{ instanceId: 'vanished', host: 'vanished.internal', staleUntil }];
  // The clock does not advance: a response that waits would never arrive.
  const { status, body } = await call('POST', `/keys/${keys[0]?.keyId}/revoke`);
  t.equal(status, 200);
  t.same((body.data as NewKey).propagation, { gateways: 2, confirmed: 1, pending, milliseconds: 0 });

  store.live.push(gateway('slow', { revision: 3, acknowledges: false }));
  const both = await outwait(call('POST', `/keys/${keys[1]?.keyId}/revoke`), 2);
  t.match(
    both.body.data,
    { propagation: { milliseconds: 2000, pending: { length: 2 } } },
    'a live gateway is waited for',
  );
});

onEachDatabase(
  'a change is stored while the store is unavailable, reported as unprojected, and written later',
  async (t, url) => {
    const { call, createKey, createMerchant, database, outwait, store, time } = await registryFixture(t, url);
    const { id } = await createMerchant();
    const { keyId } = await createKey(id);
    store.live = [gateway('a', { revision: 2 })];
    store.fails = (one) => (one === 'write' ? 'before' : null);
    const revoked = await outwait(call('POST', `/keys/${keyId}/revoke`), 1);
    t.match(revoked, { status: 202, body: { success: true, data: { status: 'REVOKED' } } });
    t.same((revoked.body.data as NewKey).propagation, {
      ...{ gateways: 1, confirmed: 0, milliseconds: 2000, projected: false },
      pending: [{ instanceId: 'a', host: 'a.internal', staleUntil: null }],
    });
    store.fails = () => 'before';
    const created = await outwait(call<NewKey>('POST', `/merchants/${id}/keys`, { body: { environment: 'live' } }), 1);
    t.match(created, {
      status: 202,
      body: { data: { key: /^svc_live_/, propagation: { gateways: null, pending: emptyList } } },
    });
    t.match((await call('GET', '/readyz')).body, { success: true, data: { projection: 'behind' } });
    t.match(await call('GET', '/gateways'), {
      status: 503,
      body: {
        message: /^The gateways' key store is unavailable/,
        data: { code: 'service_unavailable', errors: emptyList },
      },
    });

    store.fails = () => null;
    time.advance(10_000);
    await until(() => store.revision === 4);
    t.match(store.live, [{ revision: 4 }]);
    t.match(JSON.stringify([...store.records.values()]), `"keyId":"${keyId}"`);
    await until(async () => (await database.selectFrom('outbox').selectAll().execute()).length === 0);
    const isCurrent = async () =>
      JSON.stringify((await call('GET', '/readyz')).body).includes('"projection":"current"');
    await until(isCurrent);
    t.match((await call('POST', `/keys/${keyId}/revoke`)).status, 200);
  },
);

t.test('a store that never replies does not delay the response', async (t) => {
  const { call, createMerchant, outwait, store } = await registryFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  store.gateways = () => {
    store.calls.push('gateways');
    return new Promise(() => undefined);
  };
  const response = await outwait(call('PATCH', `/merchants/${id}`, { body: { goLive: true } }), 2);
  t.match(response, {
    status: 200,
    body: { data: { goLive: true, propagation: { gateways: null, milliseconds: 2000 } } },
  });
});
