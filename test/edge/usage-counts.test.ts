import t, { type Test } from 'tap';
import type { RegistryChannel } from '../../src/gateway/channel-ports.js';
import { RowLists, noRoom } from '../../src/edge/observe/row-lists.js';
import { hourMilliseconds, type UsageBatch } from '../../src/usage/batch.js';
import { parseBatch } from '../../src/usage/batch-text.js';
import {
  ask,
  connect,
  exchangeBytes,
  liveKey,
  recordsOf,
  requestBytes,
  startTestGateway,
  startUpstream,
} from './harness.js';

/** A registry that stores and acknowledges each batch, in order of arrival. */
function storingRegistry(batches: UsageBatch[]): RegistryChannel {
  return {
    send: async ({ body }) => {
      const batch = await parseBatch(body);
      if (batch === null) return JSON.stringify({ problem: 'malformed' });
      batches.push(batch);
      return JSON.stringify({ sequence: batch.sequence });
    },
    close: () => Promise.resolve(),
  };
}

/** Starts a gateway that sends its counts to a new test registry. `end` drains the gateway and returns all batches. */
async function startCounting(t: Test, setup: Parameters<typeof startTestGateway>[1] = {}) {
  const batches: UsageBatch[] = [];
  const problems: unknown[] = [];
  const usage = {
    ...{ channel: storingRegistry(batches), instance: 'test:1' },
    onUsageProblem: (problem: string | null) => void problems.push(problem),
  };
  const { url: upstreamUrl } = await startUpstream(t);
  const gateway = await startTestGateway(t, { ...setup, usage, upstreamUrl });
  const end = async (): Promise<UsageBatch[]> => {
    await gateway.drain(Promise.resolve());
    t.same(problems, []);
    return batches;
  };
  return { gateway, end };
}

type Line = Record<string, Record<string, unknown> | undefined>;

/** Sums the requests of access log lines by merchant, key, hour and code. */
function cellsOfLines(lines: readonly Record<string, unknown>[]): Map<string, number> {
  const cells = new Map<string, number>();
  for (const line of lines as Line[]) {
    const at = Date.parse(line['@timestamp'] as unknown as string);
    const merchant = line.organization?.id ?? '';
    const key = (line.gateway?.key as { id?: string } | undefined)?.id ?? '';
    const { codes } = (line.gateway?.aggregate ?? {}) as { codes?: Record<string, number> };
    for (const [code, count] of Object.entries(codes ?? { [String(line.event?.code)]: 1 }))
      add(cells, [merchant, key, at - (at % hourMilliseconds), code], count);
  }
  return cells;
}

/** Sums the counts of batches, also by merchant, key, hour and code. */
function cellsOfBatches(batches: readonly UsageBatch[]): Map<string, number> {
  const cells = new Map<string, number>();
  for (const { keys, unknown } of batches) {
    for (const { hour, code, count } of unknown.codes) add(cells, ['', '', hour, code], count);
    for (const { merchantId, keyId, codes } of keys)
      for (const { hour, code, count } of codes) add(cells, [merchantId ?? '', keyId ?? '', hour, code], count);
  }
  return cells;
}

function add(cells: Map<string, number>, names: readonly unknown[], count: number): void {
  const cell = names.join(' ');
  cells.set(cell, (cells.get(cell) ?? 0) + count);
}

const key = (value: string): readonly [string, string] => ['X-Api-Key', value];

t.test('the counts equal the access log, cell by cell, with shared lines and rejected requests', async (t) => {
  const { gateway, end } = await startCounting(t, { config: { throttle: { badKeys: 30 } } });
  for (let count = 0; count < 5; count += 1) await ask(gateway, { headers: [key(liveKey)] });
  await exchangeBytes(connect(gateway.http, null), requestBytes({ headers: [key(liveKey)] }));
  await ask(gateway, { path: '/v1/nowhere', headers: [key(liveKey)] });
  await exchangeBytes(connect(gateway.http, null), 'GET / HTTP/1.1\r\nbad header\r\n\r\n');
  for (let count = 0; count < 60; count += 1)
    await ask(gateway, { headers: [key(`svc_live_${String(count).padStart(24, 'x')}`)] });
  const batches = await end();
  const [logged, counted] = [cellsOfLines(gateway.lines), cellsOfBatches(batches)];
  t.same([...counted].toSorted(), [...logged].toSorted());
  const isShared = (line: Line): boolean => line.gateway?.aggregate !== undefined;
  t.ok((gateway.lines as Line[]).some(isShared), 'some lines stand for several requests');
  t.equal(sum(counted.values()), 68);
});

t.test('accepted requests have their last use, address, country, User-Agent, host, duration and bytes', async (t) => {
  const geoIp = {
    locate: () => ({ countryIsoCode: 'DE', asNumber: 64_496 }),
    isTorExit: () => false,
    close: () => undefined,
  };
  const { gateway, end } = await startCounting(t, { geoIp });
  const headers = [key(liveKey), ['User-Agent', 'shop/1'], ['Origin', 'https://shop.example/']] as const;
  const from = Date.now();
  for (let count = 0; count < 3; count += 1) await ask(gateway, { headers });
  await ask(gateway, { headers: [key(liveKey), ['User-Agent', `shop ${liveKey}`]], method: 'POST', body: '{}' });
  const batches = await end();
  const [used] = batches.flatMap(({ keys }) => keys);
  if (used === undefined) throw new Error('no key was counted');
  const day = from - (from % 86_400_000);
  t.match(used, { keyId: 'key_1', merchantId: 'm_1', lookupId: null });
  const all = batches.flatMap(({ keys }) => keys);
  const codes = all.flatMap((one) => one.codes);
  t.equal(sum(codes.map(({ count }) => count)), 4);
  t.equal(sum(codes.map(({ requestBytes }) => requestBytes)), 2);
  t.ok(codes.every(({ responseBytes, count }) => responseBytes >= 40 * count));
  t.ok(codes.every((one) => one.totalMilliseconds >= one.slowestMilliseconds && one.slowestMilliseconds > 0));
  for (const { addresses, lastUse } of all) {
    t.match(addresses, [{ day, address: '127.0.0.1', country: 'DE', asNumber: 64_496, refused: 0 }]);
    t.match(lastUse, { address: '127.0.0.1', country: 'DE' });
    t.ok((lastUse?.at ?? 0) >= from);
  }
  const agents = new Set(all.flatMap((one) => one.agents.map(({ agent }) => agent)));
  t.same(agents, new Set(['shop/1', 'shop svc_live_…']), 'a key in the User-Agent is not sent');
  t.notOk(JSON.stringify(batches).includes(liveKey));
  const hosts = batches.flatMap(({ merchants }) => merchants.flatMap((one) => one.hosts));
  t.ok(hosts.every(({ header, host }) => header === 'origin' && host === 'shop.example'));
  t.equal(sum(hosts.map(({ accepted }) => accepted)), 3, 'Host does not count, because every request has it');
});

t.test('a refused request of a known key leaves its details, also if it was refused before the look-up', async (t) => {
  const { gateway, end } = await startCounting(t, {
    records: recordsOf(liveKey, { merchant: { originAllowlist: ['shop.example'] } }),
  });
  const path = '/v1/transactions/7?secret=1';
  const denied = await ask(gateway, { path, headers: [key(liveKey), ['Origin', 'https://evil.example/x?y']] });
  t.equal(denied.status, 401);
  await exchangeBytes(connect(gateway.http, null), requestBytes({ path, headers: [key(liveKey)] }));
  await ask(gateway, { path, headers: [key('svc_live_unknownunknownunknown1')] });
  const batches = await end();
  const refusals = batches.flatMap(({ merchants }) => merchants.flatMap((one) => one.refusals));
  const common = { method: 'GET', path: '/v1/transactions/7', address: '127.0.0.1', keyId: 'key_1', status: 401 };
  t.match(
    refusals.toSorted((one, other) => (one.code > other.code ? 1 : -1)),
    [
      { ...common, code: 'https_required', header: null },
      { ...common, code: 'origin_not_allowed', header: { name: 'origin', value: 'evil.example' } },
    ],
  );
  t.equal(refusals.find(({ header }) => header !== null)?.requestId, denied.header('x-request-id'));
  t.same(
    batches.flatMap(({ unknown }) => unknown.codes.map(({ code, count }) => [code, count])),
    [['key_unknown', 1]],
  );
});

t.test('the newest refusals of a merchant displace older ones, and the rest is counted as dropped', async (t) => {
  const { gateway, end } = await startCounting(t, {
    records: recordsOf(liveKey, { merchant: { ipAllowlist: ['192.0.2.1'] } }),
  });
  const paths = Array.from({ length: 50 }, (_, index) => `/v1/transactions/${index}`);
  for (const path of paths) await ask(gateway, { path, headers: [key(liveKey)] });
  const batches = await end();
  const refusals = batches.flatMap(({ merchants }) => merchants.flatMap((one) => one.refusals));
  t.equal(refusals.length + sum(batches.map(({ dropped }) => dropped.refusals)), 50);
  t.same(
    refusals.slice(-5).map(({ path }) => path),
    paths.slice(-5),
  );
});

t.test('lists of rows keep sums exact when rows have no room', (t) => {
  const lists = new RowLists(100, 1, 3, 10);
  const expected = new Map<string, number>();
  for (let count = 0; count < 400; count += 1) {
    const [owner, at] = [count % 7, count % 2 === 0 ? 5 : 105];
    lists.add(lists.rowOf(owner, at, `label ${count % 5}`), count);
    add(expected, [''], count);
  }
  const rows = [0, 1, 2, 3, 4, 5, 6].flatMap((owner) => rowsOf(lists, owner));
  t.equal(sum(rows.map(({ place }) => lists.numberAt(place))) + lists.numberAt(noRoom), expected.get(''));
  t.ok(rows.length <= 10);
  t.ok(lists.numberAt(noRoom) > 0, 'there is no room for some');
  t.end();
});

t.test('a row is about one period', (t) => {
  const lists = new RowLists(hourMilliseconds, 1);
  for (const at of [3_599_999, 3_600_000, 3_600_001]) lists.add(lists.rowOf(0, at, 'a'), 1);
  t.same(
    rowsOf(lists, 0).map(({ period, place }) => [period, lists.numberAt(place)]),
    [
      [3_600_000, 2],
      [0, 1],
    ],
  );
  t.end();
});

t.test('lists of rows grow, and keep owners and periods apart', (t) => {
  const lists = new RowLists<string>(1_000, 2, 2);
  for (let round = 0; round < 3; round += 1) {
    for (let owner = 0; owner < 1_000; owner += 1) {
      for (const label of ['a', 'b', 'c', 'd']) {
        const place = lists.rowOf(owner, 1_000 + owner, label, `note ${owner}`);
        lists.add(place, 1);
        lists.raise(place + 1, round);
      }
    }
  }
  for (const owner of [0, 1, 500, 999]) {
    const rows = rowsOf(lists, owner).map(({ label, note, period, firstAt, place }) => {
      return [label, note, lists.numberAt(place), lists.numberAt(place + 1), period, firstAt];
    });
    const times = [1_000, 1_000 + owner];
    t.same(rows, [
      [null, null, 6, 2, ...times],
      ['b', `note ${owner}`, 3, 2, ...times],
      ['a', `note ${owner}`, 3, 2, ...times],
    ]);
  }
  t.end();
});

function sum(numbers: Iterable<number>): number {
  return [...numbers].reduce((total, number) => total + number, 0);
}

type Row<Note> = Parameters<Parameters<RowLists<Note>['each']>[1]>[0];

function rowsOf<Note>(lists: RowLists<Note>, owner: number): Row<Note>[] {
  const rows: Row<Note>[] = [];
  lists.each(owner, (row) => void rows.push(row));
  return rows;
}

t.test('as many merchants as allowed have figures of their own, all others together', async (t) => {
  const second = { key: 'svc_live_8Zq1cQ8mXo2TestOnly', id: 'm_2' };
  const one = recordsOf(liveKey);
  const other = recordsOf(second.key, { key: { keyId: 'key_2', merchantId: second.id } });
  const records = { ...one, ...other };
  const { url: upstreamUrl } = await startUpstream(t);
  for (const [most, expected] of [
    [
      2,
      [
        'merchant_id="m_1",result="accepted"} 2',
        'merchant_id="m_2",result="refused"} 1',
        'merchant_id="others",result="accepted"} 0',
      ],
    ],
    [
      1,
      [
        'merchant_id="m_1",result="accepted"} 2',
        'merchant_id="others",result="accepted"} 1',
        'merchant_id="others",result="refused"} 1',
      ],
    ],
    [0, []],
  ] as const) {
    const gateway = await startTestGateway(t, { upstreamUrl, records, config: { usage: { merchantMetrics: most } } });
    const send = (key: string, path = '/v1/transactions') => ask(gateway, { path, headers: [['x-api-key', key]] });
    await send(liveKey);
    await send(liveKey);
    await send(second.key);
    t.equal((await send(second.key, '/v1/nowhere')).status, 404);
    await send('svc_live_0000000000000000000000');
    const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
    for (const series of expected) t.ok(metrics.includes(`gateway_merchant_requests_total{${series}\n`), series);
    t.equal(metrics.match(/^gateway_merchant_requests_total/gm)?.length ?? 0, most === 0 ? 0 : 2 * (most + 1));
  }
});
