import { readFileSync } from 'node:fs';
import t from 'tap';
import type { Test } from 'tap';
import { FreeSpace } from '../../src/telemetry/log-file.js';
import { ask, connect, exchangeBytes, liveKey, recordsOf, startTestGateway, startUpstream } from '../edge/harness.js';
import { openLog, until } from '../telemetry/open-log.js';

interface Line {
  readonly organization?: { readonly id: string };
  readonly client?: { readonly ip?: string };
  readonly gateway: { readonly aggregate?: { readonly count: number; readonly codes: Record<string, number> } };
  readonly event: { readonly code: string; readonly action: string };
}

const reserveBytes = 1_000;
const revoked = 'svc_live_ofAMerchantThatLeft';

async function start(t: Test, free: { bytes: number | null }, throttle: object = {}) {
  const file = `${t.testdir()}/access.log`;
  const accessLog = openLog(file, {
    reserveBytes,
    renameMilliseconds: 10,
    readFreeBytes: (_directory, callback) => {
      callback(free.bytes);
    },
  });
  const gateway = await startTestGateway(t, {
    accessLog,
    upstreamUrl: (await startUpstream(t)).url,
    records: {
      ...recordsOf(liveKey),
      ...recordsOf(revoked, { key: { keyId: 'key_2', merchantId: 'm_2', status: 'REVOKED' } }),
    },
    config: { trustedProxies: ['127.0.0.1'], throttle },
  });
  const lines = (): Line[] =>
    readFileSync(file, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Line)
      .filter(({ event }) => event.action === 'api-request');
  const metric = async (name: string): Promise<string | undefined> => {
    const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
    return new RegExp(`^${name} (.*)$`, 'm').exec(text)?.[1];
  };
  const from = (client: string, key?: string) =>
    ask(gateway, {
      headers: [['x-forwarded-for', client], ...(key === undefined ? [] : [['x-api-key', key] as const])],
    });
  return { gateway, accessLog, lines, metric, from };
}

t.test('a nearly full disk is kept for accepted requests and refusals of known keys', async (t) => {
  for (const [what, throttle] of [
    ['with the throttle', {}],
    ['without it', { enabled: false }],
  ] as const) {
    await t.test(what, async (t) => {
      const free = { bytes: 2_000 };
      const { gateway, accessLog, lines, metric, from } = await start(t, free, throttle);
      t.equal((await from('198.51.100.1')).status, 401);
      free.bytes = 999;
      await until(() => accessLog.hasOnlyReserve());
      t.equal(await metric('gateway_access_log_reserve_reached'), '1');
      for (let count = 2; count < 12; count += 1) await from(`198.51.100.${count}`);
      for (let count = 2; count < 6; count += 1) await from(`198.51.100.${count}`, 'svc_live_guess');
      t.equal((await from('198.51.100.1', liveKey)).status, 200);
      t.equal((await from('198.51.100.1', revoked)).status, 401);
      await exchangeBytes(connect(gateway.https, gateway.ca), 'garbage\r\n\r\n');
      free.bytes = 1_050;
      const looked = new Promise((resolve) => setTimeout(resolve, 50)); // some looks at the disk
      await looked;
      t.ok(accessLog.hasOnlyReserve(), 'a little more is not enough');
      free.bytes = 1_100;
      await until(() => !accessLog.hasOnlyReserve());
      t.equal((await from('198.51.100.1')).status, 401);
      t.equal(await metric('gateway_access_log_reserve_reached'), '0');
      t.equal(await metric('gateway_access_log_shared_requests_total{reason="reserve"}'), '15');
      await gateway.drain();
      const own = lines().filter((line) => line.gateway.aggregate === undefined);
      t.same(
        own.map(({ event }) => event.code),
        ['key_required', 'accepted', 'key_inactive', 'key_required'],
      );
      const shared = lines().flatMap((line) => line.gateway.aggregate ?? []);
      t.equal(
        shared.reduce((sum, { count }) => sum + count, 0),
        15,
      );
      const codes: Record<string, number> = {};
      for (const line of shared)
        for (const [code, count] of Object.entries(line.codes)) codes[code] = (codes[code] ?? 0) + count;
      t.same(codes, { key_required: 10, key_unknown: 4, malformed_request: 1 });
      t.ok(lines().every((line) => line.gateway.aggregate === undefined || line.client?.ip === undefined));
    });
  }
});

t.test('a disk of which nobody says how full it is changes nothing, and none is looked at without a reserve', (t) => {
  let [looks, changes] = [0, 0];
  const free: { bytes: number | null } = { bytes: null };
  const open = (reserve: number): FreeSpace =>
    new FreeSpace(
      '/a/b.log',
      reserve,
      () => (changes += 1),
      (directory, callback) => {
        t.equal(directory, '/a');
        looks += 1;
        callback(free.bytes);
      },
    );
  const space = open(10);
  space.look();
  t.same([looks, changes, space.hasOnlyReserve], [2, 0, false]);
  free.bytes = 9;
  space.look();
  free.bytes = null;
  space.look();
  t.same([changes, space.hasOnlyReserve], [1, true]);
  open(0).look();
  t.equal(looks, 4);
  t.end();
});

t.test('the room of a real file system is read', async (t) => {
  const told: boolean[] = [];
  const log = openLog(`${t.testdir()}/access.log`, {
    reserveBytes: 2 ** 50,
    onReserve: (hasOnlyReserve) => told.push(hasOnlyReserve),
  });
  await until(() => log.hasOnlyReserve());
  t.same(told, [true]);
  await log.close(1_000);
});
