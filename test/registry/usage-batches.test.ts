import { deflateRawSync } from 'node:zlib';
import fc from 'fast-check';
import t from 'tap';
import { type RefusalDetail, type UsageBatch } from '../../src/usage/batch.js';
import { batchText } from '../usage/batch-text.js';
import { onEachDatabase } from '../database/each-database.js';
import { addressCount, codeCount, countsOf, day, hour, keyUsage } from './usage-fixture.js';
import { merchantUsage, refusal, usageBatch, usageFixture } from './usage-fixture.js';

onEachDatabase('a batch is added exactly once, also when several registries receive it at once', async (t, url) => {
  const { add, another, batches, database } = await usageFixture(t, url);
  const bodies = await Promise.all(
    [1, 2, 3].map((sequence) =>
      batchText(usageBatch({ sequence, keys: [keyUsage('key_1', { codes: [codeCount('accepted', 5)] })] })),
    ),
  );
  for (const [index, body] of bodies.entries()) {
    const replies = await Promise.all([batches, another(), another()].map((one) => one.add(body)));
    t.same(replies, Array(3).fill(JSON.stringify({ sequence: index + 1 })));
  }
  t.same(await countsOf(database), { 'key_1 accepted': 15 });
  t.same(await add({ sequence: 2 }), { sequence: 3 }, 'a repeated batch gets the newest sequence number');
  t.same(await countsOf(database), { 'key_1 accepted': 15 });
  t.match(await database.selectFrom('usage_hours').selectAll().execute(), [
    { total_milliseconds: 30, slowest_milliseconds: 3, request_bytes: 15, response_bytes: 30 },
  ]);
  t.equal(batches.results.added + batches.results.repeated, 4);
});

onEachDatabase('batches of a process are added in their order, and what is lost is recorded', async (t, url) => {
  const { add, database, logged } = await usageFixture(t, url);
  const keys = [keyUsage('key_1', { codes: [codeCount('accepted', 1)] })];
  t.same(await add({ sequence: 2, acknowledged: 0, keys }), { sequence: 0 }, 'the first one is under way');
  t.same(await countsOf(database), {});
  await add({ sequence: 1, acknowledged: 0, keys });
  await add({ sequence: 2, acknowledged: 0, keys });
  t.same(await countsOf(database), { 'key_1 accepted': 2 });
  t.same(await database.selectFrom('usage_gaps').selectAll().execute(), []);

  // The database was restored: the gateway knows that four batches were stored.
  t.same(await add({ sequence: 6, acknowledged: 4, keys }), { sequence: 2 }, 'the fifth one is under way');
  t.same(await add({ sequence: 5, acknowledged: 4, keys }), { sequence: 5 });
  t.same(await add({ sequence: 6, acknowledged: 4, keys }), { sequence: 6 });
  t.same(await countsOf(database), { 'key_1 accepted': 4 });
  t.match(await database.selectFrom('usage_gaps').selectAll().execute(), [{ process: 'p-1', first: 3, last: 4 }]);
  t.match(logged, [{ instance: 'gateway-1:17', batches: 2 }]);
});

onEachDatabase('random batches in random orders and duplicates sum up to exact totals', async (t, url) => {
  const { batches, another, database } = await usageFixture(t, url);
  const registries = [batches, another()];
  const counted = fc.record({
    ...{ process: fc.constantFrom('a', 'b', 'c'), key: fc.constantFrom('key_1', 'key_2', 'key_3') },
    ...{ code: fc.constantFrom('accepted', 'ip_not_allowed'), count: fc.integer({ min: 1, max: 1_000 }) },
    address: fc.integer({ min: 0, max: 150 }),
  });
  let run = 0;
  const expected: Record<string, number> = {};
  let total = 0;
  const traffic = fc.tuple(fc.array(counted, { minLength: 1, maxLength: 30 }), fc.infiniteStream(fc.nat()));
  await fc.assert(
    fc.asyncProperty(traffic, async ([counts, random]) => {
      run += 1;
      const waiting = new Map<string, UsageBatch[]>();
      for (const { process, key, code, count, address } of counts) {
        const name = `${process}-${run}`;
        const list = waiting.get(name) ?? [];
        waiting.set(name, list);
        const counted = { accepted: code === 'accepted' ? count : 0, refused: code === 'accepted' ? 0 : count };
        const addresses = [addressCount(`192.0.2.${address}`, 0, counted)];
        const keys = [keyUsage(key, { codes: [codeCount(code, count)], addresses })];
        list.push(usageBatch({ process: name, sequence: list.length + 1, acknowledged: 0, keys }));
        expected[`${key} ${code}`] = (expected[`${key} ${code}`] ?? 0) + count;
        total += count;
      }
      const next = (below: number): number => (random.next().value ?? 0) % below;
      while (waiting.size > 0) {
        const names = [...waiting.keys()];
        const name = names[next(names.length)] ?? '';
        const list = waiting.get(name) ?? [];
        const body = await batchText(list[next(list.length)] ?? usageBatch());
        const received = registries.slice(0, 1 + next(2));
        const replies = await Promise.all(received.map((one) => one.add(body)));
        const { sequence } = JSON.parse(replies[0] ?? '') as { sequence: number };
        const left = list.filter((one) => one.sequence > sequence);
        if (left.length === 0) waiting.delete(name);
        else waiting.set(name, left);
      }
      const stored = await countsOf(database);
      t.same(stored, Object.fromEntries(Object.keys(stored).map((name) => [name, expected[name]])));
      const { sum } = await database
        .selectFrom('usage_addresses')
        .select((it) => it.cast<number>(it.fn.sum(it('accepted', '+', it.ref('refused'))), 'bigint').as('sum'))
        .executeTakeFirstOrThrow();
      t.equal(sum, total, 'also over the addresses');
    }),
    { numRuns: 15 },
  );
});

onEachDatabase('a malformed batch is refused with the reason, and logged once a minute', async (t, url) => {
  const { add, batches, database, logged, time } = await usageFixture(t, url);
  const keys = (more: object): Partial<UsageBatch> => ({ keys: [keyUsage('key_1', more)] });
  const invalid = (what: string): string => `an invalid ${what}; report this as a bug of the gateway`;
  const merchants = (id: string, more: Partial<RefusalDetail>): Partial<UsageBatch> => ({
    merchants: [merchantUsage(id, { refusals: [refusal('r-1', more)] })],
  });
  const cases: Readonly<Record<string, readonly [batch: Partial<UsageBatch>, problem: string]>> = {
    'a time after the last date': [{ from: 8.65e15, to: 8.66e15 }, invalid('time')],
    'an end before its beginning': [{ from: hour, to: hour - 1 }, invalid('time')],
    'an hour that is not whole': [keys({ codes: [codeCount('accepted', 1, { hour: hour + 1 })] }), invalid('time')],
    'a day that is not whole': [keys({ addresses: [addressCount('192.0.2.1', 1, { day: hour })] }), invalid('time')],
    'a count that overflows': [
      keys({ codes: [codeCount('accepted', 1, { requestBytes: 1e12 + 1 })] }),
      invalid('count'),
    ],
    'a code with other characters': [keys({ codes: [codeCount('=1+1', 1)] }), invalid('code')],
    'a refused request whose code has other characters': [merchants('m_1', { code: '=1+1' }), invalid('code')],
    'an id of a key with other characters': [{ keys: [keyUsage('key 1')] }, 'a key whose id or merchant id is invalid'],
    'a key without its merchant': [keys({ merchantId: null }), 'a key whose id or merchant id is invalid'],
    'an id of a merchant with other characters': [merchants('', {}), 'a merchant whose id is invalid'],
    'a refused request with another key id': [
      merchants('m_1', { keyId: 'key 1' }),
      'a refused request with a key whose id is invalid',
    ],
    'an acknowledged sequence number that is not lower': [{ sequence: 1, acknowledged: 1 }, invalid('sequence number')],
  };
  for (const [what, [batch, problem]] of Object.entries(cases))
    t.same(await add(batch), { problem: `the message with request counts has ${problem}` }, what);
  for (const body of ['', '{}', deflateRawSync('{}').toString('base64')])
    t.same(JSON.parse(await batches.add(body)), {
      problem: 'the message with request counts is malformed or too large',
    });
  t.equal(logged.length, 1);
  const most = keys({ codes: [codeCount('accepted', 1, { requestBytes: 1e12 })] });
  t.match(await add({ ...most, process: 'p-2' }), { sequence: 1 }, 'the highest count');
  await database.deleteFrom('usage_processes').execute();
  time.advance(60_000);
  await batches.add('');
  t.equal(logged.length, 2);
  t.equal(batches.results.refused, Object.keys(cases).length + 4);
  t.same(await database.selectFrom('usage_processes').selectAll().execute(), []);
});

onEachDatabase('while the database cannot be used, a batch gets no reply and is added later', async (t, url) => {
  const failing = { fails: true };
  const { add, database } = await usageFixture(t, url, {
    observers: [() => (failing.fails ? Promise.reject(new Error('away')) : Promise.resolve())],
  });
  const batch = { keys: [keyUsage('key_1', { codes: [codeCount('accepted', 1)] })] };
  await t.rejects(add(batch), /away/);
  t.same(await countsOf(database), {}, 'nothing of it was stored');
  failing.fails = false;
  t.same(await add(batch), { sequence: 1 });
  t.same(await countsOf(database), { 'key_1 accepted': 1 });
});

onEachDatabase('a key that the gateway did not look up is found by its look-up id', async (t, url) => {
  const seen: UsageBatch[] = [];
  const { add, database } = await usageFixture(t, url, {
    observers: [(_transaction, batch) => Promise.resolve(void seen.push(batch))],
  });
  const stamps = { created_revision: 1, revision: 1, created_at: 0, updated_at: 0, status: 'ACTIVE' };
  const merchant = { id: 'm_1', name: 'Ada', go_live: 1, ip_allowlist: null, origin_allowlist: null, ...stamps };
  await database.insertInto('merchants').values(merchant).execute();
  const key = { key_id: 'key_1', merchant_id: 'm_1', lookup_id: 'aa', environment: 'live', label: null } as const;
  await database
    .insertInto('api_keys')
    .values({ ...key, permissions: '["*"]', expires_at: null, ...stamps })
    .execute();
  const codes = [codeCount('tor_blocked', 2)];
  const addresses = [addressCount('192.0.2.1', 0, { refused: 2 })];
  await add({
    keys: [
      keyUsage(null, { lookupId: 'aa', codes, addresses }),
      keyUsage(null, { lookupId: 'bb', codes, addresses }),
      keyUsage(null, { codes }),
      keyUsage('key_1', { codes }),
    ],
    unknown: { codes: [codeCount('key_unknown', 1)], addresses },
  });
  t.same(await countsOf(database), { ' key_unknown': 1, ' tor_blocked': 4, 'key_1 tor_blocked': 4 });
  const stored = database.selectFrom('usage_addresses').select(['merchant_id', 'key_id', 'address', 'refused']);
  t.same(await stored.orderBy('merchant_id').execute(), [
    { merchant_id: '', key_id: '', address: '192.0.2.1', refused: 4 },
    { merchant_id: 'm_1', key_id: 'key_1', address: '192.0.2.1', refused: 2 },
  ]);
  t.same(
    seen[0]?.keys.map(({ keyId, merchantId }) => [keyId, merchantId]),
    [
      ['key_1', 'm_1'],
      [null, null],
      [null, null],
      ['key_1', 'm_1'],
    ],
  );
});

onEachDatabase('lists are limited each day, and their sums stay exact', async (t, url) => {
  const { add, database } = await usageFixture(t, url);
  const addresses = Array.from({ length: 90 }, (_, index) => addressCount(`192.0.2.${index}`, 1));
  const further = Array.from({ length: 90 }, (_, index) => addressCount(`192.0.2.${index + 80}`, 10));
  const agents = (prefix: string) =>
    Array.from({ length: 15 }, (_, index) => ({ day, agent: `${prefix}${index}`, count: 1 }));
  const hosts = (from: number) =>
    Array.from({ length: 150 }, (_, index) => ({
      ...{ day, header: 'origin', host: `shop-${from + index}.example`, accepted: 1, refused: 2 },
    }));
  const merchants = (from: number) => [merchantUsage('m_1', { hosts: hosts(from) })];
  const other = addressCount(null, 7, { country: 'DE', asNumber: 1 });
  await add({ keys: [keyUsage('key_1', { addresses, agents: agents('a') })], merchants: merchants(0) });
  await add({
    sequence: 2,
    keys: [
      keyUsage('key_1', { addresses: [...further, other], agents: agents('b') }),
      keyUsage('key_2', { addresses: further }),
    ],
    merchants: merchants(100),
  });
  const rowsOf = async (key: string): Promise<Record<string, number>> => {
    const rows = await database.selectFrom('usage_addresses').selectAll().where('key_id', '=', key).execute();
    t.same(
      rows.filter(({ address, country, as_number }) => address === '' && (country ?? as_number) !== null),
      [],
    );
    return Object.fromEntries(rows.map(({ address, accepted }) => [address, accepted]));
  };
  const first = await rowsOf('key_1');
  t.equal(Object.keys(first).length, 101, '100 addresses and the others');
  t.match(first, { '192.0.2.0': 1, '192.0.2.85': 11, '192.0.2.99': 10, '': 707 });
  t.equal(Object.keys(await rowsOf('key_2')).length, 90);
  const agentRows = await database.selectFrom('usage_agents').selectAll().execute();
  t.equal(agentRows.length, 21);
  t.match(
    agentRows.find(({ agent }) => agent === ''),
    { count: 10 },
  );
  const hostRows = await database.selectFrom('usage_hosts').selectAll().execute();
  t.equal(hostRows.length, 201);
  t.match(
    hostRows.find(({ host }) => host === ''),
    { header: '', accepted: 50, refused: 100 },
  );
});

onEachDatabase('the newest 1,000 refusals of a merchant are kept, numbered without gaps', async (t, url) => {
  const { add, database } = await usageFixture(t, url);
  const refusals = (from: number, count: number) =>
    Array.from({ length: count }, (_, index) => refusal(`r-${from + index}`));
  await add({ merchants: [merchantUsage('m_1', { refusals: refusals(1, 600) }), merchantUsage('m_2')] });
  const others = merchantUsage('m_2', { refusals: refusals(1, 3) });
  await add({ sequence: 2, merchants: [merchantUsage('m_1', { refusals: refusals(601, 600) }), others] });
  const rows = async (merchant: string) => {
    const kept = database.selectFrom('usage_refusals').select(['seq', 'request_id']);
    return kept.where('merchant_id', '=', merchant).orderBy('seq').execute();
  };
  const kept = await rows('m_1');
  t.equal(kept.length, 1_000);
  t.same(
    [kept[0], kept.at(-1)],
    [
      { seq: 201, request_id: 'r-201' },
      { seq: 1_200, request_id: 'r-1200' },
    ],
  );
  t.same(
    (await rows('m_2')).map(({ seq }) => seq),
    [1, 2, 3],
  );
  await add({ sequence: 3, merchants: [merchantUsage('m_2', { refusals: refusals(4, 1_500) })] });
  const newest = await rows('m_2');
  t.same([newest.length, newest[0], newest.at(-1)?.seq], [1_000, { seq: 504, request_id: 'r-504' }, 1_503]);
});

onEachDatabase('addresses can be stored as networks', async (t, url) => {
  const { add, database } = await usageFixture(t, url, { addresses: 'network' });
  const lastUse = { at: hour, address: '192.0.2.77', country: 'DE' };
  const addresses = ['192.0.2.1', '192.0.2.200', '2001:db8:1:2::3', 'none'].map((one) => addressCount(one, 1));
  const merchants = [merchantUsage('m_1', { refusals: [refusal('r-1', { address: '198.51.100.7' })] })];
  await add({ keys: [keyUsage('key_1', { addresses, lastUse })], merchants });
  const stored = await database.selectFrom('usage_addresses').select(['address', 'accepted']).execute();
  t.same(Object.fromEntries(stored.map(({ address, accepted }) => [address, accepted])), {
    ...{ '192.0.2.0/24': 2, '2001:db8:1::/48': 1, invalid: 1 },
  });
  t.match(await database.selectFrom('usage_keys').selectAll().execute(), [{ last_address: '192.0.2.0/24' }]);
  t.match(await database.selectFrom('usage_refusals').selectAll().execute(), [{ address: '198.51.100.0/24' }]);
});

onEachDatabase('the last use of a key is the latest, in whatever order batches arrive', async (t, url) => {
  const { add, database } = await usageFixture(t, url);
  const used = (at: number, address: string) => [keyUsage('key_1', { lastUse: { at, address, country: null } })];
  await add({ keys: used(hour + 5, '192.0.2.5') });
  await add({ process: 'p-2', keys: used(hour + 3, '192.0.2.3') });
  t.match(await database.selectFrom('usage_keys').selectAll().execute(), [
    { key_id: 'key_1', merchant_id: 'm_1', last_at: hour + 5, last_address: '192.0.2.5' },
  ]);
});

onEachDatabase('texts that SQL cannot store are stored with a replacement character', async (t, url) => {
  const { add, database } = await usageFixture(t, url);
  const agents = [{ day, agent: 'a\0b\ud800"\\', count: 1 }];
  t.same(await add({ keys: [keyUsage('key_1', { agents })] }), { sequence: 1 });
  t.match(await database.selectFrom('usage_agents').selectAll().execute(), [{ agent: 'a\ufffdb\ufffd"\\' }]);
});

t.test('batches of 1,000 keys are added up', async (t) => {
  const { add, database } = await usageFixture(t, 'sqlite::memory:');
  const keys = Array.from({ length: 1_000 }, (_, index) =>
    keyUsage(`key_${index}`, {
      ...{ merchantId: `m_${index}`, codes: [codeCount('accepted', 1), codeCount('ip_not_allowed', 1)] },
      ...{ addresses: [addressCount('192.0.2.1', 1)], agents: [{ day, agent: 'curl', count: 1 }] },
      lastUse: { at: hour, address: '192.0.2.1', country: null },
    }),
  );
  for (const sequence of [1, 2, 3]) t.same(await add({ sequence, keys }), { sequence });
  const { count } = await database
    .selectFrom('usage_hours')
    .select((it) => it.fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow();
  t.equal(count, 2_000);
});
