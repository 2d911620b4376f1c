import t from 'tap';
import { onEachDatabase } from '../database/each-database.js';
import { registryFixture } from './registry-fixture.js';
import { emptyList } from '../empty-list.js';

const now = '2026-01-15T12:00:00.000Z';
const done = { gateways: 0, confirmed: 0, pending: [], milliseconds: 0 };

onEachDatabase('each creation and update of a merchant has its own revision and event', async (t, url) => {
  const { call, store, time } = await registryFixture(t, url);
  const created = await call<{ id: string }>('POST', '/merchants', { body: { name: 'Zoë Ọlá 🏦' } });
  t.equal(created.status, 201);
  const { id } = created.body.data;
  t.match(id, /^m_[0-9A-HJKMNP-TV-Z]{26}$/);
  const merchant = {
    ...{ id, name: 'Zoë Ọlá 🏦', status: 'ACTIVE', goLive: false, ipAllowlist: null, originAllowlist: null },
    ...{ revision: 1, createdAt: now, updatedAt: now, statusChangedAt: now },
  };
  t.same(created.body, { success: true, message: 'Merchant created', data: { ...merchant, propagation: done } });
  t.same((await call('GET', `/merchants/${id}`)).body.data, merchant);

  time.advance(1000);
  const body = { goLive: true, status: 'SUSPENDED', ipAllowlist: ['203.0.113.9/24'], confirm: ['private_range'] };
  const headers = { 'x-actor': 'ada@example.com' };
  const changed = await call('PATCH', `/merchants/${id}`, { body, headers });
  const after = {
    ...{ ...merchant, goLive: true, status: 'SUSPENDED', ipAllowlist: ['203.0.113.0/24'] },
    ...{ revision: 2, updatedAt: '2026-01-15T12:00:01.000Z', statusChangedAt: '2026-01-15T12:00:01.000Z' },
  };
  t.match(changed, { status: 200, body: { message: 'Merchant changed', data: { ...after, propagation: done } } });
  t.same((await call('GET', `/merchants/${id}`)).body.data, after);
  t.same(store.records.get(`merchant:${id}`), {
    ...{ merchantId: id, name: 'Zoë Ọlá 🏦', status: 'SUSPENDED', goLive: true, ipAllowlist: ['203.0.113.0/24'] },
    ...{ originAllowlist: null, revision: 2, statusChangedAt: '2026-01-15T12:00:01.000Z' },
  });
  t.equal(store.revision, 2);

  const origin = {
    ...{ administratorId: null, proof: 'bootstrap', source: '127.0.0.1', reason: null },
    requestId: /^[0-9a-f-]{36}$/,
  };
  const events = (await call<{ action: string }[]>('GET', '/events')).body.data;
  const changes = events.filter(({ action }) => action !== 'merchant.read');
  t.match(changes, [
    {
      ...{
        ...origin,
        claimed: 'ada@example.com',
        at: '2026-01-15T12:00:01.000Z',
        actor: 'bootstrap',
        action: 'merchant.changed',
      },
      ...{ merchantId: id, keyId: null, revision: 2 },
      before: { status: 'ACTIVE', goLive: false, ipAllowlist: null },
      after: { status: 'SUSPENDED', goLive: true, ipAllowlist: ['203.0.113.0/24'] },
    },
    {
      ...{
        ...origin,
        claimed: null,
        seq: 1,
        at: now,
        actor: 'bootstrap',
        action: 'merchant.created',
        merchantId: id,
        keyId: null,
        revision: 1,
      },
      ...{ before: null, after: merchant },
    },
  ]);
});

onEachDatabase(
  'a change without effect, or a rejected one, leaves the merchant and the events as they are',
  async (t, url) => {
    const { call, createMerchant } = await registryFixture(t, url);
    const { id } = await createMerchant({ name: 'One' });
    t.match(await call('PATCH', `/merchants/${id}`, { body: { name: 'One', goLive: false } }), {
      status: 200,
      body: { data: { revision: 1 } },
    });
    for (const revision of [0, '1', 1.5, null]) {
      const message = /^revision must be a whole number: the revision on which the change is based;/;
      t.match(await call('PATCH', `/merchants/${id}`, { body: { name: 'Two', revision } }), {
        status: 422,
        body: { message },
      });
    }
    t.match(await call('PATCH', `/merchants/${id}`, { body: { name: 'Two', revision: 7 } }), {
      status: 409,
      body: {
        message:
          'Another request has changed the merchant (its revision is now 1): read the merchant again, then repeat the change',
        data: { code: 'conflict', errors: emptyList },
      },
    });
    t.equal((await call('PATCH', '/merchants/m_nobody', { body: { name: 'Two' } })).status, 404);
    t.match(await call('PATCH', `/merchants/${id}`, { body: { name: 'Two', revision: 1 } }), {
      status: 200,
      body: { data: { name: 'Two', revision: 3 } },
    });
    t.match((await call('GET', '/events')).body, { meta: { total_records: 2 } });
  },
);

onEachDatabase('the merchant list is paged, newest first, and filtered by name and status', async (t, url) => {
  const { call, createMerchant } = await registryFixture(t, url);
  for (const name of ['Ada Stores', 'Ọlá 100%', 'ada_bakery', 'Kwame']) await createMerchant({ name });
  await createMerchant({ name: 'Closed', status: 'INACTIVE' });
  const names = async (query: string) =>
    (await call<{ name: string }[]>('GET', `/merchants?${query}`)).body.data.map(({ name }) => name);
  t.same(await names(''), ['Closed', 'Kwame', 'ada_bakery', 'Ọlá 100%', 'Ada Stores']);
  t.same(await names('name=ADA'), ['ada_bakery', 'Ada Stores']);
  t.same(await names('name=_'), ['ada_bakery'], 'SQL wildcards are matched literally');
  t.same(await names('name=%25'), ['Ọlá 100%']);
  t.same(await names("name=' or 1=1"), []);
  t.same(await names(`name=${encodeURIComponent('Ọlá')}`), ['Ọlá 100%']);
  t.same(await names('status=INACTIVE'), ['Closed']);
  t.same(await names('per_page=2&page=2'), ['ada_bakery', 'Ọlá 100%']);
  t.same((await call('GET', '/merchants?per_page=2')).body.meta, {
    ...{ total_records: 5, current_page: 1, total_pages: 3, per_page: 2 },
  });
  t.equal((await call('GET', '/merchants?status=x')).status, 422);
  t.equal((await call('GET', '/merchants?limit=1')).status, 422);
  for (const path of ['/merchants/m_nobody', '/merchants/a%20b', `/merchants/${'m'.repeat(65)}`]) {
    t.match(await call('GET', path), {
      status: 404,
      body: { success: false, message: 'Merchant not found', data: { code: 'not_found', errors: emptyList } },
    });
  }
});

t.test('each invalid field of a merchant is rejected with a specific message', async (t) => {
  const { call, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  const cases: [body: object | string, path: string | null, message: RegExp][] = [
    [{ status: 'ACTIVE' }, 'name', /^name is required$/],
    [{ name: '' }, 'name', /a text of 1 to 100 characters/],
    [{ name: 'x'.repeat(101) }, 'name', /1 to 100/],
    [{ name: 'a\u0000b' }, 'name', /on one line/],
    [{ name: 'x', status: 'active' }, 'status', /upper case/],
    [{ name: 'x', status: 'A'.repeat(33) }, 'status', /upper case/],
    [{ name: 'x', goLive: 1 }, 'goLive', /true or false/],
    [{ name: 'x', ipAllowlist: '203.0.113.7' }, 'ipAllowlist', /^ipAllowlist must be null, or a list of at most 1000/],
    [{ name: 'x', ipAllowlist: Array.from({ length: 1001 }, () => '8.8.8.8') }, 'ipAllowlist', /at most 1000/],
    [{ name: 'x', originAllowlist: ['x'.repeat(301)] }, 'originAllowlist', /at most 1000/],
    [{ name: 'x', confirm: ['everything'] }, 'confirm', /a list with any of open_range, private_range, empty_list/],
    [{ name: 'x', id: 'm_mine' }, 'id', /^id is not a known field$/],
    [
      { name: 'x', ipAllowlist: ['8.8.8.8', 'here'] },
      'ipAllowlist[1]',
      /^ipAllowlist\[1\] must be an IP address or CIDR/,
    ],
    [{ name: 'x', originAllowlist: ['shop.example/'] }, 'originAllowlist[0]', /must be a host such as/],
  ];
  for (const [body, path, message] of cases) {
    const expected = {
      status: 422,
      body: { success: false, message, data: { code: 'validation_failed', errors: [{ path, message }] } },
    };
    t.match(await call('POST', '/merchants', { body }), expected, JSON.stringify(body).slice(0, 80));
  }
  t.match(await call('POST', '/merchants', { body: '{"name":"a","name":"b"}' }), {
    ...{ status: 422, body: { message: 'The field "name" is given more than once' } },
  });
  t.equal((await call('POST', '/merchants', { body: { name: 'x'.repeat(1024 * 1024) } })).status, 413);
  for (const body of [{}, { revision: 0 }, { name: null }]) {
    t.equal((await call('PATCH', `/merchants/${id}`, { body })).status, 422, JSON.stringify(body));
  }
  t.match((await call('GET', '/merchants')).body, { meta: { total_records: 1 } });
});

t.test('a change that is usually a mistake requires its confirmation flag', async (t) => {
  const { call } = await registryFixture(t, 'sqlite::memory:');
  const cases: [list: object, flag: string][] = [
    [{ ipAllowlist: ['0.0.0.0/0'] }, 'open_range'],
    [{ ipAllowlist: ['::/0'] }, 'open_range'],
    [{ ipAllowlist: ['8.0.0.0/7'] }, 'open_range'],
    [{ ipAllowlist: ['2000::/3'] }, 'open_range'],
    [{ ipAllowlist: ['::ffff:0.0.0.0/96'] }, 'open_range'],
    [{ ipAllowlist: ['20.0.0.0/8', '30.0.0.0/8'] }, 'open_range'],
    [{ ipAllowlist: ['10.1.2.3'] }, 'private_range'],
    [{ ipAllowlist: ['8.8.8.8', '192.168.0.0/16'] }, 'private_range'],
    [{ ipAllowlist: ['fd00::/48'] }, 'private_range'],
    [{ ipAllowlist: ['127.0.0.1'] }, 'private_range'],
    [{ ipAllowlist: [] }, 'empty_list'],
    [{ originAllowlist: [] }, 'empty_list'],
    [{ originAllowlist: ['*.com'] }, 'open_range'],
    [{ originAllowlist: ['http://localhost:3000'] }, 'private_range'],
    [{ originAllowlist: ['10.0.0.1'] }, 'private_range'],
  ];
  for (const [list, flag] of cases) {
    const title = JSON.stringify(list);
    const body = { name: 'x', ...list };
    const others = ['open_range', 'private_range', 'empty_list'].filter((one) => one !== flag);
    for (const confirm of [undefined, [], others]) {
      const response = await call('POST', '/merchants', { body: { ...body, confirm } });
      t.match(response, { status: 422, body: { data: { errors: [{}] } } }, title);
      t.ok(response.body.message.includes(`send "confirm": ["${flag}"]`), title);
    }
    t.equal((await call('POST', '/merchants', { body: { ...body, confirm: [flag] } })).status, 201, title);
  }
  const { data } = (await call<{ id: string }>('POST', '/merchants', { body: { name: 'x', ipAllowlist: ['8.8.8.8'] } }))
    .body;
  const path = `/merchants/${data.id}`;
  t.equal(
    (await call('PATCH', path, { body: { ipAllowlist: [] } })).status,
    422,
    'an update to an empty list needs the flag too',
  );
  t.equal((await call('PATCH', path, { body: { ipAllowlist: null } })).status, 200, 'null differs from an empty list');
});
