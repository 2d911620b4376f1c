import { onEachDatabase } from '../database/each-database.js';
import { gateway } from '../registry/memory-records-store.js';
import { registryFixture } from '../registry/registry-fixture.js';

// The store can come to hold an older record than the database. Who saw a suspended merchant served and suspended it again was
// told that every gateway knew, and nothing was written.
onEachDatabase(
  'to suspend a merchant again writes its record again, and is confirmed by what comes of that',
  async (t, url) => {
    const { call, createMerchant, outwait, store } = await registryFixture(t, url);
    const { id } = await createMerchant();
    store.live = [gateway('a')];
    const name = `merchant:${id}`;
    const old = store.records.get(name) ?? {};
    const suspend = () => call('PATCH', `/merchants/${id}`, { body: { status: 'SUSPENDED' } });
    const first = await suspend();
    t.match(first, { status: 200, body: { data: { revision: 2, propagation: { gateways: 1, confirmed: 1 } } } });
    const trail = (await call('GET', '/events')).body;

    store.records.set(name, old);
    t.same((await suspend()).body, first.body, 'the merchant is as it was');
    t.match(store.records.get(name), { status: 'SUSPENDED', revision: 2 });
    t.same((await call('GET', '/events')).body, trail, 'and so are the events');

    store.records.set(name, old);
    store.live = store.live.map((one) => ({ ...one, acknowledges: false }));
    t.match(
      await outwait(suspend(), 2),
      { status: 200, body: { data: { propagation: { gateways: 1, confirmed: 0, pending: [{ instanceId: 'a' }] } } } },
      'a gateway that knew of the first change may have read the old record since',
    );
  },
);
