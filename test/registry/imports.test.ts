import { createHash } from 'node:crypto';
import { sql } from '../../src/database/kysely.js';
import t, { type Test } from 'tap';
import type { Checked } from '../../src/registry/imports/schema.js';
import type { RegistryEvent } from '../../src/registry/events/schema.js';
import { onEachDatabase } from '../database/each-database.js';
import { until } from './manual-time.js';
import { registryFixture } from './registry-fixture.js';
import { expectedRecords, storedRecords, waitingChanges } from './stored-state.js';
import { emptyList } from '../empty-list.js';

const hash = (text: string | number): string => createHash('sha256').update(String(text)).digest('hex');

function merchantEntry(merchantId: string, fields: object = {}): object {
  const lists = { ipAllowlist: null, originAllowlist: null };
  return { type: 'merchant', merchantId, name: 'Ada Stores', status: 'ACTIVE', goLive: true, ...lists, ...fields };
}

function keyEntry(key: string | number, fields: object = {}): object {
  const grant = { merchantId: 'm_a', environment: 'live', status: 'ACTIVE', permissions: ['*'] };
  return { type: 'key', lookupId: hash(key), ...grant, ...fields };
}

interface Imported {
  readonly created: { merchants: number; keys: number };
  readonly present: { merchants: number; keys: number };
  readonly revision: number | null;
  readonly projected: boolean;
  readonly errors?: { path: string; message: string }[];
}

async function importing(t: Test, url: string) {
  const fixture = await registryFixture(t, url);
  const { call, database } = fixture;
  const send = (entries: unknown[], headers = {}) => call<Imported>('POST', '/imports', { body: { entries }, headers });
  const check = (entries: unknown[], merchants?: string[]) =>
    call<Checked>('POST', '/imports/check', { body: { entries, ...(merchants && { merchants }) } });
  const events = async (query = '') => (await call<RegistryEvent[]>('GET', `/events?${query}`)).body.data;
  const exported = async (query = ''): Promise<object[]> => {
    const entries: object[] = [];
    let more = '';
    for (;;) {
      const { body } = await call<{ entries: object[]; next: string | null; revision: number }>(
        'GET',
        `/exports?${query}${more}`,
      );
      entries.push(...body.data.entries);
      if (body.data.next === null) return entries;
      more = `&after=${encodeURIComponent(body.data.next)}&until=${body.data.revision}`;
    }
  };
  const rows = async (): Promise<number> =>
    (await database.selectFrom('api_keys').selectAll().execute()).length +
    (await database.selectFrom('merchants').selectAll().execute()).length;
  return { ...fixture, send, check, events, exported, rows };
}

onEachDatabase('an import stores merchants and keys, projects them and records audit events', async (t, url) => {
  const { call, check, database, events, send, store } = await importing(t, url);
  const entries = [
    merchantEntry('m_a', { ipAllowlist: ['8.8.4.9/24', '8.8.4.0/24'], confirm: [] }),
    merchantEntry('m_b', { status: 'SUSPENDED', goLive: false, originAllowlist: [], confirm: ['empty_list'] }),
    keyEntry('one', { keyId: 'key_one', label: 'till 7', expiresAt: '2020-01-01T01:00:00+01:00' }),
    keyEntry('two', { lookupId: hash('two').toUpperCase(), permissions: ['payouts:write', 'payouts:write'] }),
    {
      ...keyEntry('three', { merchantId: 'm_b', environment: 'test', status: 'REVOKED' }),
      ...{ type: undefined, expiresAt: '9999-12-31T23:59:59.999Z' },
    },
  ];
  t.match((await check(entries)).body.data, { created: { merchants: 2, keys: 3 }, problems: { length: 0 } });
  t.same(storedRecords(store), {}, 'a dry run stores nothing');
  t.same(await events(), []);

  const response = await send(entries, { 'x-actor': 'ada' });
  t.match(response, {
    status: 200,
    body: { data: { created: { merchants: 2, keys: 3 }, present: { merchants: 0, keys: 0 }, projected: true } },
  });
  t.equal(response.body.data.revision, 1, 'the import is a single change');
  t.same(storedRecords(store), await expectedRecords(database));
  t.match(store.records.get('merchant:m_a'), { ipAllowlist: ['8.8.4.0/24'], goLive: true });
  t.match(store.records.get(`key:${hash('one')}`), { keyId: 'key_one', expiresAt: '2020-01-01T00:00:00.000Z' });
  t.match(store.records.get(`key:${hash('two')}`), { keyId: /^key_\w{26}$/, permissions: { length: 1 } });
  t.match(store.records.get(`key:${hash('three')}`), { status: 'REVOKED', environment: 'test', merchantId: 'm_b' });

  const [second, first, ...merchants] = await events();
  t.match(
    [first, second],
    [
      {
        action: 'keys.imported',
        merchantId: 'm_a',
        actor: 'bootstrap',
        claimed: 'ada',
        revision: 1,
        before: null,
        after: { keys: 2 },
      },
      { action: 'keys.imported', merchantId: 'm_b', actor: 'bootstrap', claimed: 'ada', after: { keys: 1 } },
    ],
  );
  t.match(merchants, [{ action: 'merchant.imported', merchantId: 'm_b', after: { originAllowlist: emptyList } }, {}]);
  t.notMatch(JSON.stringify(await events()), hash('one'), 'audit events contain no lookup id');
  await call('POST', '/keys/key_one/revoke');
  const ofKey = await events('keyId=key_one');
  t.match(ofKey, [{ action: 'key.revoked' }, { action: 'keys.imported', after: { keyIds: { length: 2 } } }]);
  t.ok((ofKey[1]?.after?.keyIds as string[]).includes('key_one'), 'the import event of a key is found by its key id');
  t.equal((await events('action=keys.imported')).length, 2);
  t.equal((await events('merchantId=m_b')).length, 2);
});

onEachDatabase('paging through records of one import skips none, even while they change', async (t, url) => {
  const { call, database, send } = await importing(t, url);
  const ids = Array.from({ length: 60 }, (_, index) => `m_${index}`);
  await send([
    ...ids.map((id) => merchantEntry(id)),
    ...ids.map((id) => keyEntry(id, { merchantId: 'm_0', keyId: id })),
  ]);
  // Autovacuum would run ANALYZE eventually; PostgreSQL then sorts the result instead of following an index.
  await sql`analyze`.execute(database);
  const listed = async (path: string, change: (id: string) => Promise<unknown>): Promise<string[]> => {
    const found: string[] = [];
    for (let page = 1; page <= 9; page += 1) {
      const { data } = (await call<{ id?: string; keyId: string }[]>('GET', `${path}?per_page=7&page=${page}`)).body;
      found.push(...data.map(({ id, keyId }) => id ?? keyId));
      await change(found[0] ?? '');
    }
    return found.toSorted();
  };
  const merchants = await listed('/merchants', (id) => call('PATCH', `/merchants/${id}`, { body: { goLive: false } }));
  t.same(merchants, ids.toSorted());
  const keys = await listed('/merchants/m_0/keys', (id) => call('POST', `/keys/${id}/revoke`));
  t.same(keys, ids.toSorted());
});

onEachDatabase(
  'an import leaves identical records unchanged and rejects a batch with differing records',
  async (t, url) => {
    const { call, check, database, events, rows, send } = await importing(t, url);
    const entries = [
      merchantEntry('m_a'),
      keyEntry(1, { permissions: ['payouts:read', 'wallets:*'] }),
      keyEntry(2, { keyId: 'key_2' }),
    ];
    await send(entries);
    const again = await send([...entries, keyEntry(3)]);
    t.match(again.body.data, { created: { merchants: 0, keys: 1 }, present: { merchants: 1, keys: 2 }, revision: 2 });
    const third = await send([entries[0], keyEntry(1, { permissions: ['wallets:*', 'payouts:read'] }), entries[2]]);
    t.match(third, { status: 200, body: { data: { revision: null, present: { keys: 2 }, projected: true } } });
    t.equal((await events()).length, 3, 'an import of identical records makes no change');

    const before = await rows();
    const cases: [entry: object, message: RegExp][] = [
      [
        merchantEntry('m_a', { name: 'x', goLive: false }),
        /the merchant is already in .* but differs in name, goLive$/,
      ],
      [keyEntry(1), /the key is already in the registry, but differs in permissions$/],
      [keyEntry(2, { keyId: 'key_3' }), /but differs in keyId$/],
      [keyEntry(2, { environment: 'test', status: 'REVOKED' }), /but differs in environment, status$/],
      [keyEntry(2, { expiresAt: '2030-01-01T00:00:00Z', label: 'x' }), /but differs in label, expiresAt$/],
      [keyEntry(2, { merchantId: 'm_x' }), /but differs in merchantId$/],
      [keyEntry(9, { keyId: 'key_2' }), /keyId belongs to another key in the registry$/],
      [keyEntry(9, { permissions: ['wallet:read'] }), /"wallet" is not a resource; did you mean wallets\?/],
      [keyEntry(9, { merchantId: 'm_x' }), /the registry has no merchant m_x\. Import it before its keys, or correct/],
    ];
    for (const [entry, message] of cases) {
      t.match((await check([keyEntry(10), entry])).body.data.problems, [{ index: 1, message }], String(message));
      const refused = await send([keyEntry(10), entry]);
      t.match(refused, { status: 422, body: { data: { errors: [{ path: /^entries\[1\]\./, message }] } } });
    }
    const stored = keyEntry(1, { permissions: ['wallet:read'] });
    await database
      .updateTable('api_keys')
      .set({ permissions: '["wallet:read"]' })
      .where('lookup_id', '=', hash(1))
      .execute();
    t.match(
      (await check([stored])).body.data,
      { problems: { length: 0 }, present: { keys: 1 } },
      'an identical record from an earlier release is accepted',
    );
    t.equal(await rows(), before, 'a batch with one invalid entry stores nothing');
    const revoked = keyEntry(9, { permissions: ['wallet:read'], status: 'REVOKED' });
    t.match(
      (await check([revoked])).body.data,
      { problems: { length: 0 } },
      'the permissions of a revoked key are not checked against the routes',
    );
    t.match((await check([keyEntry(9, { merchantId: 'm_x' })], ['m_x'])).body.data, { problems: { length: 0 } });
    t.equal((await call('POST', '/keys/key_2/revoke')).status, 200);
    t.match(
      (await check([keyEntry(2)])).body.data.problems,
      [{ message: /but differs in status$/ }],
      'an import cannot undo a later status change',
    );
  },
);

t.test('all problems of invalid entries are reported together, without repeating values', async (t) => {
  const { check, rows, send } = await importing(t, 'sqlite::memory:');
  await send([merchantEntry('m_a')]);
  const secret = 'svc_live_4Vz1cQ8mXo2';
  const cases: [entry: unknown, messages: RegExp[]][] = [
    [5, [/^must be a JSON object$/]],
    [null, [/^must be a JSON object$/]],
    [[], [/^must be a JSON object$/]],
    [{}, [/lookupId is required/, /merchantId is required/, /environment/, /status/, /permissions is required/]],
    [keyEntry(1, { type: 'other' }), [/type must be key, or merchant if the entry describes a merchant/]],
    [keyEntry(1, { lookupId: hash(1).slice(1) }), [/lookupId must be 64 hexadecimal digits/]],
    [keyEntry(1, { lookupId: `${hash(1)}\n` }), [/lookupId must be 64/]],
    [keyEntry(1, { environment: 'prod' }), [/environment must be live or test/]],
    [keyEntry(1, { status: 'active' }), [/status must be ACTIVE, INACTIVE or REVOKED/]],
    [keyEntry(1, { permissions: [] }), [/permissions must be a list of 1 to 100/]],
    [keyEntry(1, { permissions: ['payouts:fly'] }), [/^permissions: /]],
    [keyEntry(1, { expiresAt: '2026-02-30T00:00:00Z' }), [/expiresAt must be a date and time that exists/]],
    [keyEntry(1, { expiresAt: '9999-12-31T23:00:00-05:00' }), [/expiresAt must be .* from 1970 to 9999/]],
    [keyEntry(1, { expiresAt: '1969-12-31T23:59:59Z' }), [/expiresAt must be/]],
    [keyEntry(1, { label: 'x\ny' }), [/label must be null, or a text/]],
    [keyEntry(1, { keyId: 'a b' }), [/keyId must be 1 to 64 letters/]],
    [keyEntry(1, { apiKey: 'x' }), [/apiKey is not a known field/]],
    [keyEntry(1, { label: secret }), [/^contains what looks like an API key/]],
    [keyEntry(1, { [secret]: 'x' }), [/^contains what looks like an API key/]],
    [keyEntry(1, { lookupId: secret.toUpperCase() }), [/^contains what looks like an API key/]],
    [merchantEntry('m_b', { goLive: 'yes' }), [/goLive must be true or false/]],
    [{ type: 'merchant', merchantId: 'm_b', name: 'x' }, [/status/, /goLive/, /ipAllowlist is req/, /originAllowlist/]],
    [merchantEntry('m_b', { ipAllowlist: ['x'] }), [/ipAllowlist\[0\] must be an IP address or CIDR/]],
    [merchantEntry('m_b', { ipAllowlist: ['10.0.0.0/8'] }), [/send "confirm": \["private_range"\] too/]],
    [merchantEntry('m_b', { environment: 'live' }), [/environment is not a known field/]],
  ];
  const { body } = await check(cases.map(([entry]) => entry));
  for (const [index, [entry, messages]] of cases.entries()) {
    const found = body.data.problems.filter((problem) => problem.index === index).map(({ message }) => message);
    t.match(found, messages, JSON.stringify(entry));
    t.equal(found.length, messages.length, JSON.stringify(entry));
  }
  const refused = await send(cases.map(([entry]) => entry));
  t.equal(refused.status, 422);
  t.notMatch(
    JSON.stringify([body, refused.body]).toLowerCase(),
    secret.toLowerCase().slice(9),
    'the error contains no key',
  );
  const repeated = [
    keyEntry(1, { keyId: 'key_1' }),
    keyEntry(1),
    keyEntry(2, { keyId: 'key_1' }),
    merchantEntry('m_c'),
    merchantEntry('m_c'),
  ];
  t.match((await check(repeated)).body.data.problems, [
    { index: 1, path: 'lookupId', message: 'lookupId is already used by entries[0]' },
    { index: 2, path: 'keyId', message: 'keyId is already used by entries[0]' },
    { index: 4, path: 'merchantId', message: 'merchantId is already used by entries[3]' },
  ]);
  t.equal((await send(repeated)).status, 422);
  for (const entries of [[], Array.from({ length: 501 }, (_, number) => keyEntry(number)), 'x']) {
    t.match(await send(entries as unknown[]), { status: 422, body: { message: /a list of 1 to 500 entries/ } });
  }
  t.equal(await rows(), 1);
});

onEachDatabase('exporting and importing into an empty registry reproduces the same data', async (t, url) => {
  const { call, createKey, createMerchant, exported, send } = await importing(t, url);
  const { id } = await createMerchant({ ipAllowlist: ['10.1.0.0/16', '9.9.9.9'], confirm: ['private_range'] });
  await createMerchant({ originAllowlist: [], confirm: ['empty_list'], status: 'SUSPENDED' });
  const { keyId } = await createKey(id, { permissions: ['payouts:write'], expiresIn: '90d', label: 'till' });
  await createKey(id, { environment: 'test' });
  await call('POST', `/keys/${keyId}/revoke`);
  await send([merchantEntry('m_a'), ...Array.from({ length: 499 }, (_, number) => merchantEntry(`m_${number}`))]);
  await send(Array.from({ length: 500 }, (_, number) => keyEntry(number)));
  const everything = await exported();
  t.equal(everything.length, 502 + 502);
  t.notMatch(JSON.stringify(everything), 'svc_');
  const merchantsLast = everything.findLastIndex((entry) => 'type' in entry && entry.type === 'merchant');
  t.equal(merchantsLast, 501, 'merchants precede keys');

  const other = await importing(t, url.startsWith('sqlite') ? `sqlite:${t.testdir()}/other.db` : 'sqlite::memory:');
  for (let start = 0; start < everything.length; start += 500) {
    t.equal((await other.send(everything.slice(start, start + 500))).status, 200);
  }
  t.same(await other.exported(), everything);
  const unrevised = (records: Record<string, object>) =>
    Object.entries(records).map(([name, record]) => [name, { ...record, revision: 0 }]);
  t.same(unrevised(storedRecords(other.store)), unrevised(await expectedRecords(other.database)));

  t.same(
    (await exported(`merchantId=${id}`)).map((entry) => Object.values(entry).includes(id)),
    [true, true, true],
  );
  t.equal((await exported('environment=test')).length, 502 + 1);
  t.match(await exported('merchantId=m_none'), { length: 0 });
  for (const query of ['after=x', 'until=-1', 'environment=prod', 'merchantId=a%20b', 'other=1']) {
    t.equal((await call('GET', `/exports?${query}`)).status, 422, query);
  }
  const { revision } = (await call<{ revision: number }>('GET', '/exports')).body.data;
  await send([merchantEntry('m_later')]);
  await send([keyEntry('later', { merchantId: 'm_later' })]);
  const page = await call<{ entries: object[] }>('GET', `/exports?after=key:&until=${revision}&merchantId=m_later`);
  t.same(page.body.data.entries, [], 'a key is not exported before its merchant');
});

onEachDatabase('an export page is limited in bytes, and the pages together are complete', async (t, url) => {
  const { call, exported, send } = await importing(t, url);
  const tail = 'x'.repeat(200);
  const originAllowlist = Array.from({ length: 1000 }, (_, number) => `${number}.${tail}.example`);
  const ids = Array.from({ length: 45 }, (_, number) => `m_${100 + number}`);
  for (const id of ids) t.equal((await send([merchantEntry(id, { originAllowlist })])).status, 200);
  const first = await call<{ entries: object[]; next: string }>('GET', '/exports');
  const bytes = Buffer.byteLength(JSON.stringify(first.body));
  t.ok(bytes > 3 * 2 ** 20 && bytes < 5 * 2 ** 20, `page of ${bytes} bytes`);
  t.match(first.body.data, { entries: { length: 19 }, next: 'merchant:m_118' });
  t.same(
    (await exported()).map((entry) => Reflect.get(entry, 'merchantId') as string),
    ids,
  );
});

t.test('a large change is projected in bounded batches; 202 reports an import that is not projected yet', async (t) => {
  const { database, outwait, projector, send, store, time } = await importing(t, 'sqlite::memory:');
  await send([merchantEntry('m_a')]);
  store.fails = (call) => (call === 'write' ? 'before' : null);
  const sizes: number[] = [];
  store.onWrite = (entries) => void sizes.push(entries.length);
  const first = await outwait(send(Array.from({ length: 500 }, (_, number) => keyEntry(`a${number}`))), 0);
  t.match(first, { status: 202, body: { data: { created: { keys: 500 }, projected: false } } });
  const second = await outwait(send(Array.from({ length: 500 }, (_, number) => keyEntry(`b${number}`))), 0);
  t.equal(second.status, 202);
  const again = await outwait(send(Array.from({ length: 500 }, (_, number) => keyEntry(`b${number}`))), 0);
  t.match(
    again,
    { status: 202, body: { data: { created: { keys: 0 }, present: { keys: 500 }, revision: null, projected: false } } },
    'a repeated import reports that its entries are not projected yet',
  );
  t.equal(await waitingChanges(database), 1000, 'the stored changes wait in the outbox for the store');
  store.fails = () => null;
  projector.wake();
  await until(async () => {
    time.advance(time.untilNext ?? 0);
    return (await waitingChanges(database)) === 0;
  });
  t.ok(Math.max(...sizes) <= 700, 'the batch size is bounded');
  const last = await send([keyEntry('a1')]);
  t.match(last, { status: 200, body: { data: { revision: null, projected: true } } });
  t.same(storedRecords(store), await expectedRecords(database));
});
