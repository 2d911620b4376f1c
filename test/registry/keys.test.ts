import { sql } from '../../src/database/kysely.js';
import t from 'tap';
import { checksumIn, lookupIdOf } from '../../src/gateway/api-key.js';
import { expiryIn, latestExpiry } from '../../src/registry/keys/expiry.js';
import { listEvents } from '../../src/registry/events/repository.js';
import { onEachDatabase } from '../database/each-database.js';
import { holdLock } from '../database/held-lock.js';
import { queryPlans } from '../database/query-plans.js';
import { pepper, registryFixture, type NewKey } from './registry-fixture.js';
import { emptyList } from '../empty-list.js';

const now = '2026-01-15T12:00:00.000Z';
const day = 24 * 60 * 60 * 1000;

onEachDatabase('a key is shown only at creation; the database stores only its lookup id', async (t, url) => {
  const { call, createMerchant, store } = await registryFixture(t, url);
  const { id } = await createMerchant();
  const body = {
    environment: 'test',
    permissions: ['payouts:*', 'customers:read', 'payouts:*'],
    label: 'Till 4',
    expiresIn: '90d',
  };
  const created = await call<NewKey>('POST', `/merchants/${id}/keys`, { body });
  t.equal(created.status, 201);
  const { key, propagation, ...shown } = created.body.data;
  t.equal(checksumIn(key), 'right');
  t.same(propagation, { gateways: 0, confirmed: 0, pending: [], milliseconds: 0 });
  t.match(shown.keyId, /^key_[0-9A-HJKMNP-TV-Z]{26}$/);
  const expiresAt = new Date(Date.parse(now) + 90 * day).toISOString();
  t.same(shown, {
    ...{ keyId: shown.keyId, merchantId: id, environment: 'test', prefix: 'svc_test_', status: 'ACTIVE' },
    ...{
      permissions: ['payouts:*', 'customers:read'],
      label: 'Till 4',
      expiresAt,
      revision: 2,
      createdAt: now,
      updatedAt: now,
      statusChangedAt: now,
    },
  });
  t.same((await call('GET', `/merchants/${id}/keys`)).body, {
    ...{ success: true, message: 'Keys retrieved', data: [{ ...shown, createdBy: 'bootstrap', lastUse: null }] },
    meta: { total_records: 1, current_page: 1, total_pages: 1, per_page: 20 },
  });
  t.same(store.records.get(`key:${lookupIdOf(key, pepper)}`), {
    ...{ keyId: shown.keyId, merchantId: id, environment: 'test', status: 'ACTIVE', expiresAt, revision: 2 },
    permissions: ['payouts:*', 'customers:read'],
    label: 'Till 4',
  });
  const plain = await call('POST', `/merchants/${id}/keys`, { body: { environment: 'live' } });
  t.match(plain.body.data, { prefix: 'svc_live_', permissions: ['*'], label: null, expiresAt: null });
});

t.test('a revocation gets 503 while the database is locked, and succeeds after the lock is released', async (t) => {
  const url = `sqlite:${t.testdir()}/registry.db`;
  const { app, call, createKey, createMerchant } = await registryFixture(t, url);
  const { keyId } = await createKey((await createMerchant()).id);
  const lock = await holdLock(t, url);
  const revocation = call('POST', `/keys/${keyId}/revoke`);
  t.equal((await call('GET', '/merchants')).status, 200, 'a read succeeds while the write waits');
  t.equal((await app.inject('/livez')).statusCode, 200);
  t.match(await revocation, { status: 503, headers: { 'retry-after': '1' }, body: { message: 'Service unavailable' } });
  const unready = await app.inject('/readyz');
  t.equal(unready.statusCode, 503);
  t.equal(
    unready.json<{ message: string }>().message,
    'The database is locked or overloaded, or does not respond in time',
  );
  await lock.release();
  t.match(await call('POST', `/keys/${keyId}/revoke`), { status: 200, body: { data: { status: 'REVOKED' } } });
  t.equal((await app.inject('/readyz')).statusCode, 200);
});

onEachDatabase('a revoked key stays revoked, and revoking it again changes nothing', async (t, url) => {
  const { call, createKey, createMerchant, store } = await registryFixture(t, url);
  const { id } = await createMerchant();
  const { keyId, key } = await createKey(id);
  const revoked = await call('POST', `/keys/${keyId}/revoke`);
  t.match(revoked, { status: 200, body: { message: 'Key revoked', data: { keyId, status: 'REVOKED', revision: 3 } } });
  const statusChangedAt = '2026-01-15T12:00:00.000Z';
  t.match(store.records.get(`key:${lookupIdOf(key, pepper)}`), {
    keyId,
    status: 'REVOKED',
    revision: 3,
    statusChangedAt,
  });
  t.same((await call('POST', `/keys/${keyId}/revoke`, { body: {} })).body, revoked.body);
  t.equal((await call('POST', `/keys/${keyId}/revoke`, { body: { when: 'later' } })).status, 422);
  t.match(await call('POST', `/keys/${keyId}/reset`, { body: {} }), {
    ...{
      status: 409,
      body: {
        message: 'Only an active key can be reset: create a new key',
        data: { code: 'conflict', errors: emptyList },
      },
    },
  });
  const events = (await call<object[]>('GET', `/events?keyId=${keyId}`)).body.data;
  t.match(events, [
    { action: 'key.revoked', revision: 3, before: { status: 'ACTIVE' }, after: { status: 'REVOKED' } },
    { action: 'key.created', revision: 2, before: null, after: { status: 'ACTIVE' } },
  ]);
});

onEachDatabase(
  'a reset issues a key with the same permissions, and expires the old key now or after the grace period',
  async (t, url) => {
    const { call, createKey, createMerchant, store, time } = await registryFixture(t, url);
    const { id } = await createMerchant();
    const fields = { environment: 'test', permissions: ['payouts:write'], label: 'Till 4', expiresIn: '10d' };
    const end = new Date(Date.parse(now) + 10 * day).toISOString();
    const first = await createKey(id, fields);
    const response = await call<NewKey>('POST', `/keys/${first.keyId}/reset`, { body: {} });
    t.equal(response.status, 201);
    const second = response.body.data;
    t.match(second, {
      ...{
        merchantId: id,
        environment: 'test',
        permissions: ['payouts:write'],
        label: 'Till 4',
        expiresAt: end,
        revision: 3,
      },
      ...{ status: 'ACTIVE', replaces: { keyId: first.keyId, status: 'REVOKED', expiresAt: end, revision: 3 } },
    });
    t.equal(checksumIn(second.key), 'right');
    t.not(second.key, first.key);
    t.match(store.records.get(`key:${lookupIdOf(first.key, pepper)}`), { status: 'REVOKED' });
    t.match(store.records.get(`key:${lookupIdOf(second.key, pepper)}`), { status: 'ACTIVE', expiresAt: end });

    const grace = { graceSeconds: 3600, expiresIn: '20d' };
    const third = await call<NewKey>('POST', `/keys/${second.keyId}/reset`, { body: grace });
    const graceEnd = new Date(Date.parse(now) + 3600_000).toISOString();
    t.match(third.body.data, {
      expiresAt: new Date(Date.parse(now) + 20 * day).toISOString(),
      replaces: { keyId: second.keyId, status: 'ACTIVE', expiresAt: graceEnd },
    });
    t.match(store.records.get(`key:${lookupIdOf(second.key, pepper)}`), { status: 'ACTIVE', expiresAt: graceEnd });
    const longer = await call('POST', `/keys/${second.keyId}/reset`, { body: { graceSeconds: 30 * 24 * 3600 } });
    t.match(
      longer.body.data,
      { replaces: { expiresAt: graceEnd } },
      'a grace period does not extend the life of a key',
    );
    t.match(
      longer.body.data,
      { expiresAt: end },
      "a successor does not inherit the end of its predecessor's grace period",
    );
    const endless = await createKey(id, { environment: 'test' });
    for (const graceSeconds of [60, 3600, 0]) {
      const again = await call('POST', `/keys/${endless.keyId}/reset`, { body: { graceSeconds } });
      t.match(again.body.data, { expiresAt: null }, 'the successor of a key without expiry has no expiry');
    }
    time.advance(3600_000);
    t.equal((await call('POST', `/keys/${second.keyId}/reset`, { body: {} })).status, 409, 'the key has expired');

    const events = (await call<object[]>('GET', `/events?keyId=${first.keyId}&action=key.reset`)).body.data;
    t.match(events, [{ revision: 3, before: { status: 'ACTIVE' }, after: { status: 'REVOKED' } }]);
    t.match((await call('GET', `/events?keyId=${second.keyId}`)).body.data, [
      ...[{ action: 'key.reset' }, { action: 'key.reset' }, { action: 'key.created', revision: 3 }],
    ]);
  },
);

onEachDatabase(
  'a key of an earlier release with a permission without a resource can be read, reset and revoked',
  async (t, url) => {
    const { call, createKey, createMerchant, database } = await registryFixture(t, url);
    const { id } = await createMerchant();
    const { keyId } = await createKey(id, { permissions: ['payouts:write'] });
    const permissions = ['payout:write', 'payouts:fly'];
    await database
      .updateTable('api_keys')
      .set({ permissions: JSON.stringify(permissions) })
      .execute();
    t.match((await call('GET', `/merchants/${id}/keys`)).body.data, [{ keyId, permissions }]);
    t.equal((await call('PATCH', `/merchants/${id}`, { body: { name: 'Ada' } })).status, 200);
    const { status, body } = await call<NewKey>('POST', `/keys/${keyId}/reset`, { body: {} });
    t.equal(status, 201);
    t.same(body.data.permissions, permissions, 'the new key has the permissions of the old key');
    t.equal((await call('POST', `/keys/${body.data.keyId}/revoke`)).status, 200);
  },
);

t.test('each invalid field of a key is rejected with a specific message', async (t) => {
  const { call, createKey, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  const cases: [fields: object, path: string, message: RegExp][] = [
    [{ environment: undefined }, 'environment', /is required/],
    [{ environment: 'LIVE' }, 'environment', /must be live or test/],
    [{ permissions: [] }, 'permissions', /a list of 1 to 100 permissions/],
    [{ permissions: Array.from({ length: 101 }, () => '*') }, 'permissions', /1 to 100/],
    [{ permissions: ['payouts'] }, 'permissions', /"payouts" is not a permission/],
    [{ permissions: ['payouts:delete'] }, 'permissions', /is not a permission/],
    [
      { permissions: ['*', 'transactions:read', 'payout:write'] },
      'permissions',
      /^permissions: "payout" is not a resource; did you mean payouts\? Resources: customers, payouts, transactions, wallets\. /,
    ],
    [
      { permissions: ['invoices:*'] },
      'permissions',
      /^permissions: "invoices" is not a resource\. Resources: customers, /,
    ],
    [{ expiresAt: now }, 'expiresAt', /a date and time in the future/],
    [{ expiresAt: '9999-12-31T23:59:59-00:01' }, 'expiresAt', /in the future, before the year 10000/],
    [{ expiresAt: '2030-02-30T00:00:00Z' }, 'expiresAt', /that exists/],
    [{ expiresAt: '2030-01-01' }, 'expiresAt', /with its zone/],
    [{ expiresAt: '2030-01-01T00:00:00' }, 'expiresAt', /with its zone/],
    [{ expiresAt: '2030-01-01T00:00:00Z', expiresIn: '1d' }, 'expiresIn', /cannot both be given/],
    [{ expiresIn: '0d' }, 'expiresIn', /such as 30m, 12h or 90d/],
    [{ expiresIn: '90' }, 'expiresIn', /such as 30m, 12h or 90d/],
    [{ expiresIn: '999999999d' }, 'expiresIn', /before the year 10000/],
    [{ label: 'a\nb' }, 'label', /on one line/],
    [{ key: 'svc_live_mine' }, 'key', /is not a known field/],
  ];
  for (const [fields, path, message] of cases) {
    const response = await call('POST', `/merchants/${id}/keys`, { body: { environment: 'live', ...fields } });
    const expected = {
      status: 422,
      body: { message, data: { code: 'validation_failed', errors: [{ path, message }] } },
    };
    t.match(response, expected, JSON.stringify(fields).slice(0, 80));
  }
  const { keyId } = await createKey(id, { expiresAt: '2030-01-01T01:00:00+01:00' });
  t.match((await call('GET', `/merchants/${id}/keys`)).body.data, [{ keyId, expiresAt: '2030-01-01T00:00:00.000Z' }]);
  for (const graceSeconds of [-1, 1.5, '60', 30 * 24 * 3600 + 1]) {
    t.equal((await call('POST', `/keys/${keyId}/reset`, { body: { graceSeconds } })).status, 422);
  }
  for (const [method, path, body] of [
    ['POST', '/merchants/m_nobody/keys', { environment: 'live' }],
    ['GET', '/merchants/m_nobody/keys', undefined],
    ['POST', '/keys/key_nobody/revoke', undefined],
    ['POST', '/keys/key_nobody/reset', {}],
    ['POST', '/keys/a%20b/revoke', undefined],
  ] as const) {
    t.match(await call(method, path, { body }), { status: 404, body: { message: /^(Merchant|Key) not found$/ } }, path);
  }
});

onEachDatabase('a key can expire at the latest time with a four-digit year', async (t, url) => {
  const { createKey, createMerchant, store } = await registryFixture(t, url);
  const { id } = await createMerchant();
  for (const expiresAt of ['9999-12-31T23:59:59Z', '9999-12-31T23:59:59.999Z']) {
    const { expiresAt: kept } = await createKey(id, { expiresAt });
    t.equal(Date.parse(kept ?? ''), Date.parse(expiresAt));
  }
  t.match(
    [...store.records.values()].filter((record) => JSON.stringify(record).includes('9999')),
    { length: 2 },
  );
});

onEachDatabase('events are paged and filtered by merchant, key, action and time', async (t, url) => {
  const { call, createKey, createMerchant, time } = await registryFixture(t, url);
  const [one, other] = [await createMerchant(), await createMerchant()];
  time.advance(1000);
  const { keyId } = await createKey(one.id);
  time.advance(1000);
  await call('POST', `/keys/${keyId}/revoke`);
  const found = async (query: string) =>
    (await call<{ seq: number }[]>('GET', `/events?${query}`)).body.data.map(({ seq }) => seq);
  t.same(await found(''), [4, 3, 2, 1]);
  t.same(await found(`merchantId=${one.id}`), [4, 3, 1]);
  t.same(await found(`merchantId=${other.id}`), [2]);
  t.same(await found(`keyId=${keyId}`), [4, 3]);
  t.same(await found('action=merchant.created'), [2, 1]);
  t.same(await found('since=2026-01-15T12:00:01Z'), [4, 3]);
  t.same(await found('since=2026-01-15T13:00:02%2B01:00'), [4]);
  t.same(await found('per_page=3&page=2'), [1]);
  for (const query of ['since=yesterday', 'since=2026-02-30T00:00:00Z', 'action=drop', 'merchantId=a%20b', 'color=x']) {
    t.equal((await call('GET', `/events?${query}`)).status, 422, query);
  }
  // For an unknown action, an empty list would wrongly suggest that the action never happened.
  const message =
    /^action must be one of merchant\.created, .*key\.revoked, key\.reset, keys\.imported, .*key\.lifted, record\.forged, .*token\.revoked, .*instance-key\.ended, events\.exported, records\.exported, usage\.forgotten, .*$/;
  t.match(await call('GET', '/events?action=key.revoke'), { status: 422, body: { message } });
});

t.test('the events of a key are found by an index, however many events its merchant has', async (t) => {
  const file = `${t.testdir()}/registry.db`;
  const { createKey, createMerchant, database } = await registryFixture(t, `sqlite:${file}`);
  const { keyId } = await createKey((await createMerchant()).id);
  const plans = await queryPlans({ database, file }, (watched) =>
    listEvents(watched, { keyId }, { page: 1, perPage: 20 }),
  );
  t.equal(plans.length, 2, 'two queries: the count and the page');
  for (const plan of plans) {
    t.match(plan, 'SEARCH events USING INDEX events_of_key (key_id=?)');
    t.match(plan, 'SEARCH events USING INDEX events_of_change (merchant_id=? AND revision=?)');
    t.notMatch(plan, /events_of_merchant/);
  }
});

onEachDatabase(
  'canary: a key and every 6-character part of its secret appear in one response and nowhere else',
  async (t, url) => {
    const { call, createKey, createMerchant, database, logged, store } = await registryFixture(t, url);
    const { id } = await createMerchant();
    const keys = [await createKey(id, { label: 'canary' }), await createKey(id, { environment: 'test' })];
    keys.push(
      (await call<NewKey>('POST', `/keys/${keys[0]?.keyId ?? ''}/reset`, { body: { graceSeconds: 60 } })).body.data,
    );
    await call('POST', `/keys/${keys[1]?.keyId ?? ''}/revoke`);
    store.fails = () => 'midway';
    await call('GET', '/gateways');
    store.fails = () => null;

    const tables = ['merchants', 'api_keys', 'events', 'outbox', 'revision', 'projector'];
    const rows = await Promise.all(tables.map((table) => sql`select * from ${sql.table(table)}`.execute(database)));
    const paths = [
      '/merchants',
      `/merchants/${id}`,
      `/merchants/${id}/keys`,
      '/events',
      '/gateways',
      '/openapi.json',
      '/readyz',
    ];
    const seen = [
      ...rows.map(({ rows }) => JSON.stringify(rows)),
      ...(await Promise.all(paths.map(async (path) => JSON.stringify(await call('GET', path))))),
      JSON.stringify(await call('POST', `/keys/${keys[2]?.keyId ?? ''}/revoke`)),
      JSON.stringify(await call('POST', `/keys/${keys[2]?.keyId ?? ''}/reset`, { body: {} })),
      JSON.stringify(logged),
      store.text(),
    ].join('\n');
    t.match(seen, 'canary', 'the searched text contains the written data');
    for (const { key } of keys) {
      const secret = key.slice('svc_live_'.length);
      const pieces = Array.from({ length: secret.length - 5 }, (_, start) => secret.slice(start, start + 6));
      t.equal(pieces.length, 44);
      t.same(
        pieces.filter((piece) => seen.includes(piece)),
        [],
      );
    }
  },
);

onEachDatabase('a list of keys says who created each, and filters by a part of the label', async (t, url) => {
  const { call, createMerchant, createKey, database } = await registryFixture(t, url);
  const { id } = await createMerchant();
  const first = await createKey(id, { label: 'Till 7' });
  const second = await createKey(id, { label: '100% online' });
  const reset = await call<NewKey>('POST', `/keys/${first.keyId}/reset`, { body: {}, headers: { 'x-actor': 'ada' } });
  const lookupId = 'ab'.repeat(32);
  const entry = {
    type: 'key',
    merchantId: id,
    environment: 'live',
    lookupId,
    permissions: ['*'],
    status: 'ACTIVE',
    label: 'moved',
  };
  const imported = await call('POST', '/imports', { body: { entries: [entry] } });
  t.equal(imported.status, 200, JSON.stringify(imported.body));
  await database
    .insertInto('usage_keys')
    .values({ key_id: second.keyId, merchant_id: id, last_at: 0, last_address: '192.0.2.9', last_country: 'NG' })
    .execute();
  interface Listed {
    readonly keyId: string;
    readonly label: string;
    readonly createdBy: string | null;
    readonly lastUse: object | null;
  }
  const list = async (query: string) => (await call<Listed[]>('GET', `/merchants/${id}/keys?${query}`)).body.data;
  t.same(
    (await list('')).map(({ label, createdBy }) => [label, createdBy]),
    [
      ['moved', 'bootstrap'],
      ['Till 7', 'bootstrap'],
      ['100% online', 'bootstrap'],
      ['Till 7', 'bootstrap'],
    ],
    'also for imported keys and for those of a reset',
  );
  const used = { at: '1970-01-01T00:00:00.000Z', address: '192.0.2.9', country: 'NG' };
  t.same((await list('label=online'))[0]?.lastUse, used);
  t.same(
    (await list('label=TILL')).map(({ keyId }) => keyId),
    [reset.body.data.keyId, first.keyId],
  );
  t.same(
    (await list('label=TILL&status=ACTIVE')).map(({ lastUse }) => lastUse),
    [null],
  );
  t.same(
    (await list('label=%25')).map(({ label }) => label),
    ['100% online'],
    'no character is a wildcard',
  );
  t.same(await list('label=_'), []);
  t.equal((await call('GET', `/merchants/${id}/keys?label=${first.key}`)).status, 422, 'a key is no label');
  const one = await call<Listed>('GET', `/keys/${second.keyId}`);
  t.match(one.body.data, { createdBy: 'bootstrap', lastUse: used });
});

t.test('a key may expire in the last millisecond of the year 9999, and not later', (t) => {
  const now = latestExpiry - 1_000;
  t.equal(expiryIn({ expiresIn: '1s' }, now), latestExpiry);
  t.match(expiryIn({ expiresIn: '1s' }, now + 1), { path: 'expiresIn' });
  const expiresAt = '9999-12-31T23:59:59.999Z';
  t.equal(expiryIn({ expiresAt }, latestExpiry - 1), latestExpiry);
  t.match(expiryIn({ expiresAt }, latestExpiry), { path: 'expiresAt' }, 'not in the future');
  t.end();
});
