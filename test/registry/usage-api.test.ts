import t, { type Test } from 'tap';
import { sql } from '../../src/database/kysely.js';
import type { DenialCode } from '../../src/policy/decision-table.js';
import { remedies } from '../../src/policy/remedies.js';
import { UsageBatches } from '../../src/registry/usage/usage-batches.js';
import { type UsageBatch } from '../../src/usage/batch.js';
import { batchText } from '../usage/batch-text.js';
import { onEachDatabase } from '../database/each-database.js';
import { registryFixture } from './registry-fixture.js';
import { addressCount, codeCount, day, hour, keyUsage, merchantUsage, refusal, usageBatch } from './usage-fixture.js';

const hourText = '2026-01-15T11:00:00.000Z';
const dayText = '2026-01-15T00:00:00.000Z';

/** The texts of a code, which `policy/remedies.ts` states. */
function remedied(code: DenialCode) {
  const { meaning, remedy } = remedies[code];
  return { meaning, remedy };
}

/** The admin API with two merchants, a key of each, and members who see only the first merchant. */
async function usageApi(t: Test, url: string) {
  const registry = await registryFixture(t, url);
  const { call, createMerchant, createKey, database, time } = registry;
  const [merchant, other] = [await createMerchant(), await createMerchant({ name: 'Other' })];
  const [key, otherKey] = [await createKey(merchant.id), await createKey(other.id)];
  const tokenFor = async (name: string, fields: object): Promise<string> => {
    const created = await call<{ id: string }>('POST', '/administrators', { body: { name, ...fields } });
    const administratorId = created.body.data.id;
    const issued = await call<{ token: string }>('POST', '/tokens', { body: { name: 'test', administratorId } });
    return issued.body.data.token;
  };
  const batches = new UsageBatches({ database, clock: time, addresses: 'full' });
  let sequence = 0;
  return {
    ...{ ...registry, merchant, other, key, otherKey, tokenFor },
    add: async (batch: Partial<UsageBatch>) => {
      sequence += 1;
      t.same(JSON.parse(await batches.add(await batchText(usageBatch({ sequence, ...batch })))), { sequence });
    },
    get: async (path: string) => (await call<Record<string, unknown>[]>('GET', path)).body,
    /** The whole response, for a body that is not JSON. */
    text: async (path: string) => {
      const headers = { authorization: 'Bearer a-token-of-administrators-0123456789' };
      return registry.app.inject({ url: path, headers });
    },
  };
}

onEachDatabase('usage is read by hour, day, key and code, with filters and pages', async (t, url) => {
  const { add, get, merchant, key } = await usageApi(t, url);
  const earlier = hour - 86_400_000;
  const owned = { merchantId: merchant.id };
  await add({
    keys: [
      keyUsage(key.keyId, {
        ...owned,
        codes: [codeCount('accepted', 5), codeCount('ip_not_allowed', 2), codeCount('accepted', 1, { hour: earlier })],
      }),
      keyUsage('key_second', { ...owned, codes: [codeCount('accepted', 10, { hour: hour - 3_600_000 })] }),
    ],
  });
  const path = `/merchants/${merchant.id}/usage`;
  const durations = { averageMilliseconds: 2, slowestMilliseconds: 3 };
  t.same((await get(path)).data, [
    {
      ...{ from: hourText, keyId: null, code: null, requests: 7, accepted: 5, refused: 2, ...durations },
      ...{ requestBytes: 7, responseBytes: 14 },
      codes: [
        { code: 'accepted', requests: 5 },
        { code: 'ip_not_allowed', requests: 2 },
      ],
    },
    {
      ...{ from: '2026-01-15T10:00:00.000Z', keyId: null, code: null, requests: 10, accepted: 10, refused: 0 },
      ...{ ...durations, requestBytes: 10, responseBytes: 20, codes: [{ code: 'accepted', requests: 10 }] },
    },
    {
      ...{ from: '2026-01-14T11:00:00.000Z', keyId: null, code: null, requests: 1, accepted: 1, refused: 0 },
      ...{ ...durations, requestBytes: 1, responseBytes: 2, codes: [{ code: 'accepted', requests: 1 }] },
    },
  ]);
  t.match((await get(`${path}?by=day`)).data, [
    { from: dayText, requests: 17, codes: [{ code: 'accepted', requests: 15 }, { code: 'ip_not_allowed' }] },
    { from: '2026-01-14T00:00:00.000Z', requests: 1 },
  ]);
  t.match((await get(`${path}?by=key`)).data, [
    { keyId: 'key_second', requests: 10, codes: [{ requests: 10 }] },
    { keyId: key.keyId, requests: 8 },
  ]);
  t.match((await get(`${path}?by=code`)).data, [{ code: 'accepted', requests: 16 }, { code: 'ip_not_allowed' }]);
  t.match(await get(`${path}?per_page=1&page=2`), {
    data: [{ requests: 10 }],
    meta: { total_records: 3, current_page: 2, total_pages: 3 },
  });
  t.match((await get(`${path}?code=ip_not_allowed`)).data, [{ requests: 2, refused: 2 }]);
  t.match((await get(`${path}?key=key_second`)).data, [{ requests: 10 }]);
  t.same((await get(`${path}?environment=test`)).data, []);
  t.equal((await get(`${path}?since=${hourText}`)).data.length, 1);
  t.equal((await get(`${path}?until=${hourText}`)).data.length, 2);
  t.match((await get(`/keys/${key.keyId}/usage?by=day`)).data, [{ requests: 7 }, { requests: 1 }]);
  t.match(await get(`${path}?since=2026-02-30T00:00:00Z`), { message: 'since must be a date and time that exists' });
  t.match(await get(`${path}?since=${hourText}&until=${hourText}`), { message: 'until must be later than since' });
  t.match(await get(`${path}?by=minute`), { message: 'by must be hour (the default), day, code or key' });
});

onEachDatabase('addresses, hosts, User-Agents and the last use are read by day', async (t, url) => {
  const { add, get, merchant, key } = await usageApi(t, url);
  const german = { country: 'DE', asNumber: 64_500 };
  const lastUse = { at: hour + 5, address: '192.0.2.1', country: 'DE' };
  const agents = [
    { day, agent: 'curl/8', count: 3 },
    { day, agent: null, count: 1 },
  ];
  const addresses = [addressCount('192.0.2.1', 3, german), addressCount(null, 1)];
  const hosts = [
    { day, header: 'origin', host: 'shop.example', accepted: 4, refused: 1 },
    { day, header: 'host', host: null, accepted: 1, refused: 0 },
  ];
  await add({
    keys: [
      keyUsage(key.keyId, { merchantId: merchant.id, addresses, agents, lastUse }),
      keyUsage('key_second', { merchantId: merchant.id, addresses: [addressCount('192.0.2.1', 1, { refused: 2 })] }),
    ],
    merchants: [merchantUsage(merchant.id, { hosts })],
  });
  const times = { firstAt: hourText, lastAt: '2026-01-15T11:00:01.000Z' };
  const others = { day: dayText, address: null, country: null, asNumber: null, accepted: 1, refused: 0, ...times };
  t.same((await get(`/merchants/${merchant.id}/addresses`)).data, [
    { day: dayText, address: '192.0.2.1', ...german, accepted: 4, refused: 2, ...times },
    others,
  ]);
  t.match((await get(`/merchants/${merchant.id}/addresses?key=key_second`)).data, [{ accepted: 1, refused: 2 }]);
  t.match(await get(`/merchants/${merchant.id}/addresses?address=192.0.2.1`), { meta: { total_records: 1 } });
  t.same((await get(`/keys/${key.keyId}/addresses`)).data, [
    { day: dayText, address: '192.0.2.1', ...german, accepted: 3, refused: 0, ...times },
    others,
  ]);
  t.same((await get(`/merchants/${merchant.id}/hosts`)).data, [
    { day: dayText, header: 'origin', host: 'shop.example', accepted: 4, refused: 1 },
    { day: dayText, header: null, host: null, accepted: 1, refused: 0 },
  ]);
  t.same((await get(`/keys/${key.keyId}/agents`)).data, [
    { day: dayText, agent: 'curl/8', requests: 3 },
    { day: dayText, agent: null, requests: 1 },
  ]);
  t.same((await get(`/keys/${key.keyId}/last-use`)).data, {
    ...{ keyId: key.keyId, merchantId: merchant.id },
    lastUse: { at: '2026-01-15T11:00:00.005Z', address: '192.0.2.1', country: 'DE' },
  });
});

onEachDatabase('an allowlist is judged by the accepted requests that it would have refused', async (t, url) => {
  const { add, get, merchant } = await usageApi(t, url);
  const addresses = [
    ...[addressCount('192.0.2.1', 5), addressCount('192.0.2.2', 3, { country: 'DE', lastAt: hour + 9_000 })],
    ...[addressCount('2001:db8::1', 2), addressCount(null, 7), addressCount('198.51.100.1', 0, { refused: 4 })],
    ...[addressCount('203.0.113.0/24', 1), addressCount('203.0.112.0/24', 10)],
  ];
  await add({ keys: [keyUsage('key_1', { merchantId: merchant.id, addresses })] });
  const path = `/merchants/${merchant.id}/addresses/verdict`;
  t.same((await get(`${path}?allow=192.0.2.1,203.0.113.7`)).data, {
    allow: ['192.0.2.1', '203.0.113.7'],
    ...{ since: '2026-01-09T00:00:00.000Z', until: '2026-01-16T00:00:00.000Z', requests: 28 },
    refused: { requests: 15, addresses: 3, firstAt: hourText, lastAt: '2026-01-15T11:00:09.000Z' },
    uncertain: 8,
    entries: [
      { entry: '192.0.2.1', addresses: '1', concern: '192.0.2.1 is not on the public internet' },
      { entry: '203.0.113.7', addresses: '1', concern: '203.0.113.7 is not on the public internet' },
    ],
    addresses: [
      { address: '203.0.112.0/24', country: null, requests: 10, firstAt: hourText, lastAt: '2026-01-15T11:00:01.000Z' },
      { address: '192.0.2.2', country: 'DE', requests: 3, firstAt: hourText, lastAt: '2026-01-15T11:00:09.000Z' },
      { address: '2001:db8::1', country: null, requests: 2, firstAt: hourText, lastAt: '2026-01-15T11:00:01.000Z' },
    ],
  });
  t.match((await get(`${path}?allow=0.0.0.0/0,::/0`)).data, { refused: { requests: 0 }, uncertain: 7 });
  t.match((await get(`${path}?allow=8.8.4.9/24,0.0.0.0/0,2000::/3`)).data, {
    entries: [
      { entry: '8.8.4.0/24', addresses: '256', concern: null },
      { entry: '0.0.0.0/0', addresses: '4294967296', concern: /^0\.0\.0\.0\/0 admits a large part/ },
      { entry: '2000::/3', addresses: (2n ** 125n).toString(), concern: /^2000::\/3 admits a large part/ },
    ],
  });
  t.match(
    (await get(`${path}?allow=203.0.113.0/24`)).data,
    { refused: { requests: 20, addresses: 4 }, uncertain: 7 },
    'an entry that is the stored network itself',
  );
  t.match((await get(`${path}?allow=`)).data, { refused: { requests: 21, addresses: 5 }, uncertain: 7 });
  t.match(await get(`${path}?allow=192.0.2`), { message: /must be an IP address or CIDR/ });
  t.match(await get(path), { message: 'allow is required' });
});

onEachDatabase('an allowlist is judged by at most 100,000 addresses', async (t, url) => {
  const { add, database, get, merchant } = await usageApi(t, url);
  await add({ keys: [keyUsage('key_1', { merchantId: merchant.id, addresses: [addressCount('192.0.2.1', 1)] })] });
  const copy = (from: number, to: number) =>
    sql`
      with recursive n(i) as (select cast(${sql.lit(from)} as integer) union all select i + 1 from n where i < ${sql.lit(to)})
      insert into usage_addresses (day, merchant_id, key_id, address, accepted, refused, first_at, last_at)
      select day, merchant_id, key_id, '10.' || (i / 65536) || '.' || (i / 256 % 256) || '.' || (i % 256), accepted, refused, first_at, last_at
      from usage_addresses, n where address = '192.0.2.1'`.execute(database);
  await copy(2, 100_000);
  const path = `/merchants/${merchant.id}/addresses/verdict?allow=192.0.2.1`;
  t.match((await get(path)).data, { refused: { requests: 99_999, addresses: 99_999 } });
  await copy(100_001, 100_001);
  t.match(await get(path), {
    message: /^since is too early: requests from more than 100000 addresses have arrived since then/,
  });
});

onEachDatabase('a filter by an address includes what is stored by its network', async (t, url) => {
  const { database, get, merchant, time } = await usageApi(t, url);
  const batches = new UsageBatches({ database, clock: time, addresses: 'network' });
  const keys = [keyUsage('key_1', { merchantId: merchant.id, addresses: [addressCount('192.0.2.7', 3)] })];
  const merchants = [merchantUsage(merchant.id, { refusals: [refusal('r-1', { address: '192.0.2.7' })] })];
  t.same(JSON.parse(await batches.add(await batchText(usageBatch({ keys, merchants })))), { sequence: 1 });
  for (const list of ['addresses', 'refusals']) {
    const addresses = async (filter: string) =>
      (await get(`/merchants/${merchant.id}/${list}?address=${filter}`)).data.map(({ address }) => address);
    t.same(await addresses('192.0.2.7'), ['192.0.2.0/24'], list);
    t.same(await addresses('192.0.2.0/24'), ['192.0.2.0/24'], list);
    t.same(await addresses('192.0.3.7'), [], list);
  }
});

onEachDatabase('refusals are read newest first, and followed without loss', async (t, url) => {
  const { add, get, merchant } = await usageApi(t, url);
  const header = { name: 'origin', value: 'https://evil.example' };
  const refusals = [
    refusal('r-1', { code: 'key_inactive' }),
    refusal('r-2', { code: 'origin_not_allowed', header, at: hour + 5 }),
    refusal('r-3', { code: 'rate_limited', status: 429, address: '192.0.2.8', keyId: null }),
  ];
  await add({ merchants: [merchantUsage(merchant.id, { refusals })] });
  const path = `/merchants/${merchant.id}/refusals`;
  const ids = async (query: string) => (await get(`${path}${query}`)).data.map(({ id }) => id);
  t.same((await get(`${path}?code=origin_not_allowed`)).data, [
    {
      ...{ id: 2, at: '2026-01-15T11:00:00.005Z', environment: 'live', code: 'origin_not_allowed', status: 401 },
      ...remedied('origin_not_allowed'),
      ...{ message: 'Origin not allowed', method: 'GET', path: '/v1/payouts', address: '192.0.2.9', keyId: 'key_1' },
      ...{ header, requestId: 'r-2' },
    },
  ]);
  t.same(await ids(''), [3, 2, 1]);
  t.match((await get(`${path}?code=rate_limited`)).data, [{ message: 'Too many requests', header: null, keyId: null }]);
  t.same(await ids('?key=key_1'), [2, 1]);
  t.same(await ids('?address=192.0.2.8'), [3]);
  t.same(await ids('?requestId=r-2'), [2]);
  t.same(await ids('?requestId=r'), []);
  t.same(await ids(`?since=2026-01-15T11:00:00.005Z`), [2]);
  t.same(await ids(`?until=2026-01-15T11:00:00.005Z`), [3, 1]);
  t.same(await ids('?environment=test'), []);
  t.same(await ids('?after=1&per_page=1'), [2], 'oldest first');
  await add({ merchants: [merchantUsage(merchant.id, { refusals: [refusal('r-4')] })] });
  t.same(await ids('?after=2'), [3, 4]);
});

onEachDatabase('operators see requests without a known key by address', async (t, url) => {
  const { add, get } = await usageApi(t, url);
  const addresses = [addressCount('192.0.2.66', 0, { refused: 9 })];
  await add({ unknown: { codes: [codeCount('key_unknown', 9)], addresses } });
  t.match((await get('/usage/unknown')).data, [{ address: '192.0.2.66', refused: 9 }]);
  t.match((await get('/usage/unknown/requests?by=code')).data, [{ code: 'key_unknown', requests: 9 }]);
});

onEachDatabase('a gateway process without a closing batch is incomplete after 30 s', async (t, url) => {
  const { add, get, time } = await usageApi(t, url);
  const process = 'p-2';
  await add({ sequence: 1, process, instance: 'gateway-2:9', dropped: { refusals: 2, rows: 3 } });
  await add({ sequence: 2, process, instance: 'gateway-2:9', isLast: true });
  await add({ sequence: 3, acknowledged: 2 });
  t.match((await get('/usage/gateways?state=running')).data, [{ process: 'p-1', lostBatches: 2 }]);
  time.advance(30_001);
  const [incomplete, ended] = (await get('/usage/gateways')).data;
  t.match(incomplete, { process: 'p-1', state: 'incomplete', incompleteSince: '2026-01-15T11:00:01.000Z' });
  t.match(ended, { process, instance: 'gateway-2:9', state: 'ended', incompleteSince: null, sequence: 2 });
  t.match(ended, { droppedRefusals: 2, droppedRows: 3, lostBatches: 0 });
  t.match(await get('/usage/gateways?state=incomplete'), { meta: { total_records: 1 } });
  t.match(await get('/usage/gateways?state=ended'), { meta: { total_records: 1 } });
  t.match(await get('/usage/gateways?environment=test'), { meta: { total_records: 0 } });
});

t.test('lists are available as CSV, in which a spreadsheet finds no formula', async (t) => {
  const { add, merchant, key, text } = await usageApi(t, 'sqlite::memory:');
  const agents = ['=HYPERLINK("http://evil")', '+1', '-1', '@SUM(A1)', '\t=1', 'a,b"c', "it's"].map((agent, index) => ({
    ...{ day, agent, count: 9 - index },
  }));
  await add({ keys: [keyUsage(key.keyId, { merchantId: merchant.id, agents, codes: [codeCount('accepted', 2)] })] });
  const response = await text(`/keys/${key.keyId}/agents?format=csv`);
  t.equal(response.headers['content-type'], 'text/csv; charset=utf-8; header=present');
  t.same(response.body.split('\r\n'), [
    ...[
      'day,agent,requests',
      `${dayText},"'=HYPERLINK(""http://evil"")",9`,
      `${dayText},"'+1",8`,
      `${dayText},"'-1",7`,
    ],
    ...[`${dayText},"'@SUM(A1)",6`, `${dayText},"'\t=1",5`, `${dayText},"a,b""c",4`, `${dayText},"it's",3`, ''],
  ]);
  t.equal(
    (await text(`/merchants/${merchant.id}/usage?format=csv`)).body,
    'from,keyId,code,requests,accepted,refused,averageMilliseconds,slowestMilliseconds,requestBytes,responseBytes,codes\r\n' +
      `${hourText},,,2,2,0,2,3,2,4,accepted=2\r\n`,
  );
  for (const name of ['page', 'per_page']) {
    const refused = await text(`/merchants/${merchant.id}/usage?format=csv&${name}=1`);
    t.match(refused.json(), { success: false, message: `${name} cannot be used with format=csv` });
  }
  t.equal((await text(`/merchants/${merchant.id}/usage?format=xml`)).statusCode, 422);
});

t.test('members see the usage of their own merchant; everything else is 404 for them', async (t) => {
  const { call, merchant, other, key, otherKey, tokenFor } = await usageApi(t, 'sqlite::memory:');
  const own = [
    ...['usage', 'refusals', 'addresses', 'addresses/verdict?allow=', 'hosts'].map(
      (it) => `/merchants/${merchant.id}/${it}`,
    ),
    ...['usage', 'last-use', 'addresses', 'agents'].map((it) => `/keys/${key.keyId}/${it}`),
  ];
  const foreign = own.map((path) => path.replace(merchant.id, other.id).replace(key.keyId, otherKey.keyId));
  const global = ['/usage/unknown', '/usage/unknown/requests', '/usage/gateways'];
  const statuses = async (token: string, paths: readonly string[]) => {
    const headers = { authorization: `Bearer ${token}` };
    return [...new Set(await Promise.all(paths.map(async (path) => (await call('GET', path, { headers })).status)))];
  };
  for (const role of ['merchant-admin', 'merchant-viewer']) {
    const token = await tokenFor(role, { roles: [role], merchantId: merchant.id });
    t.same(await statuses(token, own), [200], role);
    t.same(await statuses(token, [...foreign, ...global, '/merchants/m_x/usage', '/keys/key_x/usage']), [404], role);
    const headers = { authorization: `Bearer ${token}` };
    t.equal((await call('DELETE', `/merchants/${merchant.id}/usage`, { headers })).status, 404);
  }
  for (const role of ['operator', 'support', 'auditor']) {
    const token = await tokenFor(role, { roles: [role] });
    t.same(await statuses(token, [...own, ...foreign, ...global]), [200], role);
    const headers = { authorization: `Bearer ${token}` };
    const { status } = await call('DELETE', `/merchants/${merchant.id}/usage`, { headers });
    t.equal(status, role === 'operator' ? 200 : 403, role);
  }
  t.same(await statuses(await tokenFor('treasurer', { roles: ['treasurer'] }), [...own, ...global]), [403]);
});

onEachDatabase('what was counted for a merchant can be deleted, which is an event', async (t, url) => {
  const { add, call, database, get, merchant, other, key, otherKey } = await usageApi(t, url);
  const usageOf = (merchantId: string, keyId: string): Pick<UsageBatch, 'keys' | 'merchants'> => ({
    keys: [
      keyUsage(keyId, {
        ...{ merchantId, codes: [codeCount('accepted', 1)], addresses: [addressCount('192.0.2.1', 1)] },
        ...{ agents: [{ day, agent: 'curl', count: 1 }], lastUse: { at: hour, address: '192.0.2.1', country: null } },
      }),
    ],
    merchants: [
      merchantUsage(merchantId, {
        hosts: [{ day, header: 'host', host: 'shop.example', accepted: 1, refused: 0 }],
        refusals: [refusal('r-1')],
      }),
    ],
  });
  await add(usageOf(merchant.id, key.keyId));
  await add(usageOf(other.id, 'key_other'));
  for (const { keyId } of [key, otherKey])
    await database.insertInto('key_habits').values({ key_id: keyId, state: '{}' }).execute();
  const about = (merchantId: string, id: string) => ({
    ...{ id, target: 'a target', created_at: hour, attempts: 1, next_at: hour, given_up_at: null, problem: 'timeout' },
    body: JSON.stringify({ type: 'key.unusual-use', data: { keyId: key.keyId, merchantId, address: '192.0.2.1' } }),
  });
  const messages = [about(merchant.id, 'msg_1'), about(other.id, 'msg_2'), about(`${merchant.id}0`, 'msg_3')];
  await database
    .insertInto('webhooks')
    .values([...messages, about(merchant.id.toLowerCase(), 'msg_4')])
    .execute();
  const path = `/merchants/${merchant.id}`;
  t.match(await call('DELETE', `${path}/usage`), { status: 200, body: { data: { rows: 8 } } });
  const left = await database.selectFrom('webhooks').select('id').orderBy('id').execute();
  t.same(
    left.map(({ id }) => id),
    ['msg_2', 'msg_3', 'msg_4'],
    'undelivered messages about it are deleted, too',
  );
  const habits = await database.selectFrom('key_habits').select('key_id').execute();
  t.same(habits, [{ key_id: otherKey.keyId }], 'what was learned about its keys is deleted, too');
  for (const list of ['usage', 'refusals', 'addresses', 'hosts']) {
    t.same((await get(`${path}/${list}`)).data, [], list);
    t.equal((await get(`/merchants/${other.id}/${list}`)).data.length, 1, `${list} of another merchant`);
  }
  t.match((await get(`/keys/${key.keyId}/last-use`)).data, { lastUse: null });
  t.match((await get(`/events?action=usage.forgotten`)).data, [{ merchantId: merchant.id, actor: 'bootstrap' }]);
  await add({ merchants: [merchantUsage(merchant.id, { refusals: [refusal('r-2')] })] });
  t.match((await get(`${path}/refusals`)).data, [{ id: 2 }], 'later refusals have later ids');
  t.equal((await call('DELETE', '/merchants/m_x/usage')).status, 404);
});

onEachDatabase('a list of merchants has their active keys, and their requests of the last 24 hours', async (t, url) => {
  const { add, call, merchant, other, key, createKey, tokenFor, time } = await usageApi(t, url);
  await createKey(merchant.id);
  const { keyId } = await createKey(merchant.id);
  await call('POST', `/keys/${keyId}/revoke`);
  await createKey(merchant.id, { expiresIn: '1m' });
  await createKey(merchant.id, { expiresIn: '1h' });
  time.advance(60_000);
  const now = Math.floor(time.now() / 3_600_000) * 3_600_000;
  const codes = [
    ...[codeCount('accepted', 5, { hour: now }), codeCount('ip_not_allowed', 2, { hour: now - 23 * 3_600_000 })],
    codeCount('accepted', 100, { hour: now - 25 * 3_600_000 }),
  ];
  await add({ keys: [keyUsage(key.keyId, { merchantId: merchant.id, codes })] });
  interface Listed {
    readonly id: string;
    readonly counts: object | null;
  }
  const list = async (headers = {}) => (await call<Listed[]>('GET', '/merchants', { headers })).body.data;
  t.same(
    (await list()).map(({ id, counts }) => [id, counts]),
    [
      [other.id, { keys: 1, requests: 0, refused: 0 }],
      [merchant.id, { keys: 3, requests: 7, refused: 2 }],
    ],
  );
  const authorization = `Bearer ${await tokenFor('tess', { roles: ['treasurer'] })}`;
  t.same(
    (await list({ authorization })).map(({ counts }) => counts),
    [null, null],
    'usage:read is required',
  );
});
