import { registryAuthor } from '../../src/registry/events/author.js';
import { migrate, openDatabase } from '../../src/database/open-database.js';
import { createKey, resetKey } from '../../src/registry/keys/key-changes.js';
import { changeMerchant, createMerchant } from '../../src/registry/merchants/repository.js';
import { migrations } from '../../src/registry/migrations/migrations.js';
import { keyEntry, merchantEntry, storedKeys } from '../../src/registry/projection/current-records.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import { holdBack, lift } from '../../src/registry/restores/held-back.js';
import type { RegistryTables } from '../../src/registry/tables.js';
import { onEachDatabase } from '../database/each-database.js';
import { projectionFixture } from './projection-fixture.js';

async function keyOf(database: RegistryDatabase, keyId: string) {
  return storedKeys(database).where('key_id', '=', keyId).executeTakeFirstOrThrow();
}

async function merchantOf(database: RegistryDatabase, id: string) {
  return database.selectFrom('merchants').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
}

onEachDatabase('a revocation by a registry of the previous release is dated by its change', async (t, url) => {
  const { context, database, time } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  const created = time.now();
  t.equal((await keyOf(database, keyId)).status_changed_at, created);
  // Writes as the previous release does, which does not know the column `status_changed_at`.
  const changed = { revision: 7, updated_at: created + 5_000 };
  const key = database.updateTable('api_keys').where('key_id', '=', keyId);
  await key.set({ ...changed, status: 'ACTIVE', expires_at: created + 9_000 }).execute();
  t.equal((await keyOf(database, keyId)).status_changed_at, created, 'a future expiry is not a status change');
  await key.set({ ...changed, status: 'REVOKED' }).execute();
  t.match(keyEntry(await keyOf(database, keyId)).value, {
    statusChangedAt: new Date(created + 5_000).toISOString(),
  });
  const merchant = database.updateTable('merchants').where('id', '=', id);
  await merchant.set({ ...changed, status: 'SUSPENDED', name: 'y' }).execute();
  await merchant.set({ revision: 8, updated_at: created + 8_000, status: 'SUSPENDED', name: 'z' }).execute();
  t.match(merchantEntry(await merchantOf(database, id)).value, {
    statusChangedAt: new Date(created + 5_000).toISOString(),
  });
});

onEachDatabase(
  'holding back or lifting a record updates the time of its status change only if the status changes',
  async (t, url) => {
    const { context, database, time } = await projectionFixture(t, url);
    const { id } = await createMerchant(context, registryAuthor, { name: 'x', goLive: true });
    const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
    const ending = await createKey(context, registryAuthor, id, { environment: 'live' });
    time.advance(1_000);
    await changeMerchant(context, registryAuthor, id, { status: 'SUSPENDED' });
    const suspended = time.now();
    time.advance(1_000);
    const { name: keyName, value: key } = keyEntry(await keyOf(database, keyId));
    const { name: endingName, value: end } = keyEntry(await keyOf(database, ending.keyId));
    const { name: merchantName, value: merchant } = merchantEntry(await merchantOf(database, id));
    const known = [
      { name: keyName, value: { ...key, revision: 90, status: 'REVOKED' } },
      { name: endingName, value: { ...end, revision: 91, expiresAt: new Date(time.now()).toISOString() } },
      { name: merchantName, value: { ...merchant, revision: 92, goLive: false } },
    ];
    t.equal(await holdBack(context, known, 'store'), 3);
    t.match(await keyOf(database, keyId), { status: 'REVOKED', status_changed_at: time.now() });
    t.match(await keyOf(database, ending.keyId), { status: 'ACTIVE', status_changed_at: suspended - 1_000 });
    t.match(await merchantOf(database, id), { go_live: 0, status: 'SUSPENDED', status_changed_at: suspended });
    time.advance(1_000);
    for (const held of [keyId, ending.keyId, id]) await lift(context, registryAuthor, held);
    t.match(await keyOf(database, keyId), { status: 'ACTIVE', status_changed_at: time.now() });
    t.match(await keyOf(database, ending.keyId), { status: 'ACTIVE', status_changed_at: suspended - 1_000 });
    t.match(await merchantOf(database, id), { go_live: 1, status: 'SUSPENDED', status_changed_at: suspended });
  },
);

onEachDatabase('a reset dates the old key if it expires at once, and not if it has a grace period', async (t, url) => {
  const { context, database, time } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const { keyId } = await createKey(context, registryAuthor, id, { environment: 'live' });
  const created = time.now();
  time.advance(1_000);
  const graced = await resetKey(context, registryAuthor, keyId, { graceSeconds: 60 });
  t.match(await keyOf(database, keyId), { status: 'ACTIVE', status_changed_at: created });
  time.advance(1_000);
  const { replaces } = await resetKey(context, registryAuthor, graced.keyId, {});
  t.equal(replaces.statusChangedAt, new Date(time.now()).toISOString(), 'the response contains the same time');
  t.match(await keyOf(database, graced.keyId), { status: 'REVOKED', status_changed_at: time.now() });
});

onEachDatabase('the migration takes the time from the latest event that set the current status', async (t, url) => {
  const database = openDatabase<RegistryTables>({ url });
  t.teardown(() => database.destroy());
  const isFormer = ([name]: [string, unknown]): boolean => name < '0007-status-changes';
  await migrate(database, Object.fromEntries(Object.entries(migrations).filter(isFormer)));

  const moments = { created_revision: 1, revision: 1, created_at: 1, updated_at: 1 };
  const lists = { go_live: 1, ip_allowlist: null, origin_allowlist: null };
  const merchants = Object.entries({
    m_active: 'ACTIVE',
    m_suspended: 'SUSPENDED',
    m_created: 'IN_REVIEW',
    m_held: 'SUSPENDED',
    m_imported: 'SUSPENDED',
    m_unknown: 'SUSPENDED',
  }).map(([id, status]) => ({ id, name: 'x', status, ...lists, ...moments }));
  await database.insertInto('merchants').values(merchants).execute();
  const keys = Object.entries({
    k_active: 'ACTIVE',
    k_revoked: 'REVOKED',
    k_reset: 'REVOKED',
    k_forgotten: 'REVOKED',
    k_held: 'INACTIVE',
    k_unknown: 'REVOKED',
  }).map(([key_id, status]) => ({
    ...{ key_id, merchant_id: 'm_active', lookup_id: key_id, environment: 'live' as const, status, permissions: '[]' },
    ...{ label: null, expires_at: null, ...moments },
  }));
  await database.insertInto('api_keys').values(keys).execute();

  let at = 0;
  const event = (action: string, id: string, before: object | null, after: object) => {
    at += 1_000;
    const isKey = id.startsWith('k_');
    return {
      ...{ at, actor: 'a', action, revision: at, merchant_id: isKey ? 'm_active' : id, key_id: isKey ? id : null },
      ...{ before: before === null ? null : JSON.stringify(before), after: JSON.stringify(after) },
    };
  };
  const active = { status: 'ACTIVE', label: '"status":"REVOKED"' };
  const [revoked, suspended] = [{ status: 'REVOKED' }, { status: 'SUSPENDED' }];
  const events = [
    event('merchant.created', 'm_active', null, active), // 1000
    event('merchant.created', 'm_created', null, { status: 'IN_REVIEW' }), // 2000
    event('merchant.changed', 'm_suspended', active, suspended), // 3000
    event('merchant.changed', 'm_suspended', suspended, active), // 4000
    event('merchant.changed', 'm_suspended', active, suspended), // 5000
    event('merchant.changed', 'm_suspended', { name: 'y' }, { name: 'x' }), // 6000
    event('merchant.imported', 'm_imported', null, suspended), // 7000
    event('merchant.changed', 'm_held', active, suspended), // 8000
    event('merchant.held-back', 'm_held', { ...suspended, goLive: true }, { ...suspended, goLive: false }), // 9000
    event('key.created', 'k_active', null, active), // 10000
    event('key.revoked', 'k_revoked', active, revoked), // 11000
    event('key.reset', 'k_reset', active, revoked), // 12000
    // A reset with a grace period. The key was revoked later. The event of the revocation is already deleted, but the
    // event of the reset is kept for longer.
    event('key.reset', 'k_forgotten', active, { ...active, expiresAt: 'later' }), // 13000
    event('key.held-back', 'k_held', active, { status: 'INACTIVE' }), // 14000
    event('record.forged', 'k_unknown', null, { record: 'key:k_unknown', cause: 'forged', ...revoked }), // 15000
  ];
  for (const one of events) await database.insertInto('events').values(one).execute();

  await migrate(database, migrations);
  const found = [
    ...(await database.selectFrom('merchants').select(['id', 'status_changed_at as at']).execute()),
    ...(await database.selectFrom('api_keys').select(['key_id as id', 'status_changed_at as at']).execute()),
  ];
  t.same(Object.fromEntries(found.map(({ id, at }) => [id, at])), {
    ...{ m_active: null, m_suspended: 5_000, m_created: 2_000, m_held: 8_000, m_imported: null, m_unknown: null },
    ...{ k_active: null, k_revoked: 11_000, k_reset: 12_000, k_forgotten: null, k_held: 14_000, k_unknown: null },
  });
});
