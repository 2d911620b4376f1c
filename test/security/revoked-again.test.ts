import { lookupIdOf } from '../../src/gateway/api-key.js';
import { onEachDatabase } from '../database/each-database.js';
import { until } from '../registry/manual-time.js';
import { gateway } from '../registry/memory-records-store.js';
import { pepper, registryFixture } from '../registry/registry-fixture.js';

// The store can come to hold an older record than the database, where the write of a connection that was closed arrives late.
// To revoke the key again wrote nothing, and was confirmed.
onEachDatabase(
  'to revoke a key again writes its record again, and is confirmed by what comes of that',
  async (t, url) => {
    const { call, createKey, createMerchant, outwait, store } = await registryFixture(t, url);
    const { id } = await createMerchant();
    store.live = [gateway('a')];
    const { keyId, key } = await createKey(id);
    const name = `key:${lookupIdOf(key, pepper)}`;
    const old = store.records.get(name) ?? {};
    const revoke = () => call('POST', `/keys/${keyId}/revoke`);
    const first = await revoke();
    t.match(first, { status: 200, body: { data: { revision: 3, propagation: { gateways: 1, confirmed: 1 } } } });
    const trail = (await call('GET', '/events')).body;

    store.records.set(name, old);
    t.same((await revoke()).body, first.body, 'the key is as it was');
    t.match(store.records.get(name), { status: 'REVOKED', revision: 3 });
    t.same((await call('GET', '/events')).body, trail, 'and so are the events');

    store.records.set(name, old);
    store.live = store.live.map((one) => ({ ...one, acknowledges: false }));
    t.match(
      await outwait(revoke(), 2),
      { status: 200, body: { data: { propagation: { gateways: 1, confirmed: 0, pending: [{ instanceId: 'a' }] } } } },
      'a gateway that knew of the first revocation may have read the old record since',
    );

    store.records.set(name, old);
    store.fails = (one) => (one === 'write' ? 'before' : null);
    t.match(await outwait(revoke(), 1), { status: 202, body: { data: { propagation: { projected: false } } } });
    store.fails = () => null;
    await outwait(revoke(), 2);
    await until(() => (store.records.get(name) as { status: string }).status === 'REVOKED');
  },
);
