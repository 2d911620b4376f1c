import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import Libsql from 'libsql';
import t from 'tap';
import { parse } from 'yaml';
import type { StoredRecords } from '../../src/adapters/memory/memory-records.js';
import { loadConfig } from '../../src/config/load.js';
import { readLedger } from '../../src/services/ledger/read-ledger.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { ask, connect, exchangeBytes, startTestGateway, startUpstream } from '../edge/harness.js';
import { pepper, registryFixture } from '../registry/registry-fixture.js';
import { bankPayout, ledgerSum, merchantA, merchantB, servicesFixture } from '../services/services-fixture.js';
import { until } from '../telemetry/open-log.js';

/*
 * Data written by released versions must stay usable. Each directory here belongs to a version and never changes: its
 * records, databases and log lines were written by that version's code.
 */
const folder = 'test/compatibility';
const versions = readdirSync(folder, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name);

/** The keys whose records the directories contain. They are valid nowhere else. */
const keys = {
  live: 'svc_live_6ZQh5kgopJqUDcamWUgwWUIOiafHB3Zyga8LVNwxQda2Rm9L1',
  test: 'svc_test_T4QM0yfaC41UMRbKryTmRtwnN1iSy4VuRHphwkquevU3mBwCP',
  revoked: 'svc_live_JdIbi3CttKBv6fYuidbz18IsuOY6RFf3ck3bAie1iFv38X5QT',
};

/** The dotted names of all fields in a line, with the types of their values. */
function typesOf(value: unknown, name = ''): Map<string, string> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return new Map([[name, value === null ? 'null' : Array.isArray(value) ? 'list' : typeof value]]);
  }
  return new Map(
    Object.entries(value).flatMap(([key, part]) => [...typesOf(part, name === '' ? key : `${name}.${key}`)]),
  );
}

for (const version of versions) {
  const read = (name: string): string => readFileSync(path.join(folder, version, name), 'utf8');

  t.test(`records of ${version} lead to the same decisions, and log lines keep their fields`, async (t) => {
    const upstream = await startUpstream(t);
    const gateway = await startTestGateway(t, {
      upstreamUrl: upstream.url,
      records: JSON.parse(read('records.json')) as StoredRecords,
      pepper,
      torExits: ['203.0.113.7'],
      config: { trustedProxies: ['127.0.0.1'] },
    });
    const callOf = (key: string, ...more: (readonly [string, string])[]) =>
      [['x-api-key', key], ['user-agent', 'fixture/1'], ...more] as const;
    const statuses = [
      (await ask(gateway, { headers: callOf(keys.live) })).status,
      (await ask(gateway, { headers: callOf(keys.live), method: 'POST', path: '/v1/payouts', body: '{}' })).status,
      (await ask(gateway, { headers: callOf(keys.live), path: '/v1/nowhere' })).status,
      (await ask(gateway, {})).status,
      (await ask(gateway, { headers: callOf(keys.test) })).status,
      (await ask(gateway, { headers: callOf(keys.revoked) })).status,
      (await ask(gateway, { headers: callOf(keys.live, ['x-forwarded-for', '203.0.113.7']) })).status,
      (await ask(gateway, { headers: callOf(keys.live), path: '/v1//x' })).status,
    ];
    await exchangeBytes(connect(gateway.https, gateway.ca), 'garbage\r\n\r\n');
    t.same(statuses, [200, 200, 404, 401, 401, 401, 401, 400]);

    const old = read('access-log.ndjson')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { event: { code: string } });
    await until(() => gateway.lines.length >= old.length);
    t.same(
      gateway.lines.map((line) => (line.event as { code: string }).code),
      old.map(({ event }) => event.code),
      'the same decision codes',
    );
    for (const [index, line] of old.entries()) {
      const now = typesOf(gateway.lines[index]);
      const lost = [...typesOf(line)].filter(([name, type]) => now.get(name) !== type);
      t.same(lost, [], `no field of the line ${line.event.code} is missing or has another type`);
    }
  });

  t.test(`records of ${version} admit sandbox requests by their allowlists`, async (t) => {
    const upstream = await startUpstream(t);
    const gateway = await startTestGateway(t, {
      upstreamUrl: upstream.url,
      records: JSON.parse(read('records.json')) as StoredRecords,
      pepper,
      config: { environment: 'test', trustedProxies: ['127.0.0.1'] },
    });
    const from = async (address: string, origin: string): Promise<string> => {
      const headers = [
        ['x-api-key', keys.test],
        ['x-forwarded-for', address],
        ['origin', origin],
      ] as const;
      const { status, body } = await ask(gateway, { headers });
      return `${status} ${status === 200 ? '' : (JSON.parse(body) as { message: string }).message}`.trim();
    };
    t.equal(await from('203.0.113.9', 'https://www.shop.example'), '200');
    t.equal(await from('198.51.100.9', 'https://www.shop.example'), '401 IP address not allowed');
    t.equal(await from('2001:db8::9', 'https://other.example'), '401 Origin not allowed');
  });

  t.test(`the configuration of ${version} keeps its meaning`, (t) => {
    const config = loadConfig({ text: read('gateway.yaml'), env: {} });
    const { upstreams, ...configured } = parse(read('gateway.yaml')) as Record<string, unknown>;
    // This configuration has a relative path. Later releases make paths absolute when they load a configuration.
    const services = configured.services as { database: { url: string } };
    services.database.url = services.database.url.replace(/^sqlite:/, (scheme) => `${scheme}${process.cwd()}/`);
    t.match(config, configured, 'each option has its configured value');
    t.match(config.upstreams, {
      core: (upstreams as Record<string, object>).core,
      other: { url: 'http://other.example:8080' },
    });
    t.end();
  });

  t.test(`the registry’s database of ${version} is migrated without loss`, async (t) => {
    const directory = t.testdir();
    const database = new Libsql(path.join(directory, 'registry.db'));
    database.exec(read('registry.sql'));
    database.close();
    const { call, store } = await registryFixture(t, `sqlite:${directory}/registry.db`);
    const merchants = await call<{ name: string; id: string }[]>('GET', '/merchants');
    t.same(merchants.body.data.map(({ name }) => name).toSorted(), ['Shop', 'Åsa & Co']);
    const shop = merchants.body.data.find(({ name }) => name === 'Shop');
    const listed = await call<{ status: string }[]>('GET', `/merchants/${shop?.id ?? ''}/keys`);
    t.same(listed.body.data.map(({ status }) => status).toSorted(), ['ACTIVE', 'REVOKED']);
    const revoked = [...store.records.values()].find((record) => (record as { status: string }).status === 'REVOKED');
    t.match(revoked, { statusChangedAt: '2026-01-15T12:00:00.000Z' }, 'the time of the revocation event');
    const events = (await call<{ proof: string | null }[]>('GET', '/events')).body.data;
    const former = events.filter(({ proof }) => proof === null);
    t.equal(former.length, 6, 'every event is preserved, and nothing proves its actor');
    await call('PATCH', `/merchants/${shop?.id ?? ''}`, { body: { name: 'Shop 2' } });
    t.match(
      (await call('GET', '/events/chain')).body.data,
      { former: 6, unchained: { count: 0, firstSeq: null }, head: { position: events.length - 6 + 1 } },
      'new events are chained',
    );
    const again = await openRegistryDatabase({ url: `sqlite:${directory}/registry.db`, generation: 'another' });
    await again.destroy();
  });

  t.test(`the services’ database of ${version} is migrated and processing continues`, async (t) => {
    const file = path.join(t.testdir(), 'services.db');
    const old = new Libsql(file);
    old.exec(read('services.sql'));
    old.close();
    const { call, database, pass } = await servicesFixture(t, { url: `sqlite:${file}` });
    t.same(await readLedger(database), { mismatched: [], unbalanced: [] }, 'the migrated ledger matches the balances');
    const sides = await database.selectFrom('transactions').select(['payout_id', 'counter_account']).execute();
    t.ok(
      sides.every((one) => one.counter_account === (one.payout_id === null ? 'float' : 'payouts')),
      'each entry names its counter account',
    );
    const payouts = async () =>
      (await call(merchantA, 'GET', '/dev/payouts')).body.data as { id: string; status: string; amount: number }[];
    const statuses = async () => (await payouts()).map(({ status }) => status);
    t.same(await statuses(), ['pending', 'processing', 'failed', 'successful']);
    await pass(600_000);
    await pass(600_000);
    t.same(
      await statuses(),
      ['successful', 'successful', 'failed', 'successful'],
      'payouts in progress reach a final state',
    );

    const wallets = await call(merchantA, 'GET', '/dev/wallets');
    const wallet = (wallets.body.data as { id: string; balance: number; currency: string }[]).find(
      ({ currency }) => currency === 'NGN',
    );
    t.equal(wallet?.balance, 748_300);
    t.equal(await ledgerSum(database, wallet?.id ?? ''), 748_300, 'no money appeared or disappeared');
    const [largest] = (await call(merchantB, 'GET', '/dev/wallets')).body.data as { balance: number }[];
    t.equal(largest?.balance, Number.MAX_SAFE_INTEGER);

    const again = (amount: number) =>
      call(merchantA, 'POST', '/dev/payouts', {
        body: bankPayout(wallet?.id ?? '', { amount, remarks: 'Paid' }),
        headers: { 'idempotency-key': 'invoice-1' },
      });
    const paid = (await payouts()).find(({ amount }) => amount === 250_000);
    t.match(
      await again(250_000),
      { status: 201, body: { data: { id: paid?.id } } },
      'a repeated request makes no second payout',
    );
    t.equal((await again(250_001)).status, 422);
    t.equal((await payouts()).length, 4);
    const found = await call(merchantA, 'GET', `/dev/customers?search=${encodeURIComponent('öberg')}`);
    t.match(found.body.data, [{ firstName: 'Åsa', lastName: 'Öberg' }]);
  });
}
