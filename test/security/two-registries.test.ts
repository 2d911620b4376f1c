import { createKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { onEachDatabase } from '../database/each-database.js';
import { projectionFixture } from '../registry/projection-fixture.js';
import { differences } from '../registry/stored-state.js';

// A registry that had lost Redis prolonged its lease with each attempt, so a revocation at the other one stayed undone.
onEachDatabase('of two registries the one that reaches the store projects', async (t, url) => {
  const { context, database, projection, store, time } = await projectionFixture(t, url);
  const [lost, other] = [projection('lost'), projection('other')];
  const { id } = await createMerchant(context, 'test', { name: 'x' });
  const { keyId } = await createKey(context, 'test', id, { environment: 'live' });
  await lost.run();
  await revokeKey(context, 'test', keyId);
  // Its pauses after failures become as long as a lease, and it comes first each time.
  for (let attempt = 0; attempt < 3; attempt += 1) {
    store.fails = () => 'before';
    await t.rejects(lost.run(), /the store is away/);
    store.fails = () => null;
    await other.run();
    time.advance(10_000);
  }
  t.same(await differences(database, store), []);
});
