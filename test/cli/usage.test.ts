import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import t, { type Test } from 'tap';
import { MemoryChannel } from '../../src/adapters/memory/memory-channel.js';
import { chartLines } from '../../src/cli/admin/usage/chart.js';
import { refusalsCommand } from '../../src/cli/admin/usage/refusals.js';
import { systemClock, systemTimers } from '../../src/cli/compose/system-clock.js';
import { startRegistry } from '../../src/registry/start-registry.js';
import type { UsageRow } from '../../src/registry/usage/schema.js';
import { type UsageBatch } from '../../src/usage/batch.js';
import { batchText } from '../usage/batch-text.js';
import { MemoryRecordsStore } from '../registry/memory-records-store.js';
import { token } from '../registry/registry-fixture.js';
import { addressCount, codeCount, keyUsage, merchantUsage, refusal, usageBatch } from '../registry/usage-fixture.js';
import { ran } from './ran.js';

const now = Date.now();
const hour = Math.floor(now / 3_600_000) * 3_600_000;
const day = Math.floor(now / 86_400_000) * 86_400_000;

/**
 * Starts a registry with a merchant and a key. `command` of the result runs a command against the registry. `send`
 * sends it a batch of usage, as a gateway does.
 */
async function usageCommands(t: Test) {
  const folder = t.testdir();
  const tokenFile = path.join(folder, 'token');
  writeFileSync(tokenFile, token, { mode: 0o600 });
  const inbox = new MemoryChannel();
  const registry = await startRegistry({
    ...{ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', tokenFile, usageInbox: inbox, pepper: null },
    ...{ store: new MemoryRecordsStore(), clock: systemClock, timers: systemTimers, random: randomBytes },
    ...{ resources: new Set(['payouts']), maxStaleSeconds: 30 },
  });
  t.teardown(() => registry.close());
  const access = ['--registry', registry.url, '--token-file', tokenFile];
  const command = (...args: string[]) => ran(...args, ...access);
  const created = await command('merchants', 'create', '--name', 'Ada', '--json');
  const { id } = JSON.parse(created.out) as { id: string };
  const key = await command('keys', 'create', '--merchant', id, '--environment', 'live', '--json');
  const { keyId } = JSON.parse(key.out) as { keyId: string };
  let sequence = 0;
  const send = async (batch: Partial<UsageBatch>): Promise<void> => {
    sequence += 1;
    const times = { from: now, to: now };
    const body = await batchText(usageBatch({ sequence, ...times, ...batch }));
    t.same(JSON.parse(await inbox.send({ kind: 'usage', body })), { sequence });
  };
  return { command, id, keyId, send, access };
}

t.test('usage shows a chart, codes and the last use, and prints JSON and CSV', async (t) => {
  const { command, id, keyId, send } = await usageCommands(t);
  t.match(await command('usage', '--merchant', id), { status: 0, out: /^No requests since / });
  await send({
    keys: [
      keyUsage(keyId, {
        merchantId: id,
        codes: [codeCount('accepted', 30, { hour }), codeCount('ip_not_allowed', 10, { hour })],
        lastUse: { at: now, address: '192.0.2.1', country: 'DE' },
      }),
    ],
    unknown: { codes: [], addresses: [addressCount('192.0.2.66', 0, { day, refused: 4 })] },
  });
  const ofDay = new Date(hour).toISOString().slice(0, 10);
  const byDay = await command('usage', '--merchant', id);
  t.match(byDay.out, new RegExp(`^DAY \\(UTC\\) +ACCEPTED +REFUSED\n(.*\n){7}${ofDay} +30 +10\n`));
  t.match(byDay.out, /\nCODE +REQUESTS +SHARE .*\naccepted +30 +75.0 % .*\nip_not_allowed +10 +25.0 %/);
  t.match(
    (await command('usage', '--key', keyId, '--since', '1h')).out,
    /^HOUR[^]*last use +20.* from 192.0.2.1 \(DE\)\n$/,
  );
  const json = await command('usage', '--merchant', id, '--json');
  t.match(JSON.parse(json.out), [{ requests: 40, accepted: 30, refused: 10 }]);
  t.match(
    (await command('usage', '--merchant', id, '--csv')).out,
    /^from,keyId,code,requests,.*\r\n.*,40,30,10,.*\r\n$/,
  );
  t.match((await command('usage', '--unknown')).out, `${new Date(day).toISOString().slice(0, 10)}  192.0.2.66`);
  t.match(await command('usage'), { status: 2, err: /give exactly one of --merchant, --key and --unknown/ });
  t.match(await command('usage', '--merchant', 'm_none'), { status: 1, err: /Merchant not found/ });
  t.match(
    (await command('gateways', 'usage')).out,
    /PROCESS +ENVIRONMENT[^]*gateway-1:17 +live .* running +0 +0\n1 row/,
  );
});

t.test('a chart has a bar for each hour or day, as wide as the terminal allows', (t) => {
  const row = (from: string, accepted: number, refused: number): UsageRow => ({
    ...{ from, keyId: null, code: null, requests: accepted + refused, accepted, refused, codes: [] },
    ...{ averageMilliseconds: 0, slowestMilliseconds: 0, requestBytes: 0, responseBytes: 0 },
  });
  const rows = [row('2026-01-15T00:00:00.000Z', 90, 10), row('2026-01-13T00:00:00.000Z', 0, 1)];
  const options = { by: 'day', since: '2026-01-13T05:00:00Z', now: Date.UTC(2026, 0, 15, 12) } as const;
  t.same(chartLines(rows, { ...options, width: 52 }), [
    'DAY (UTC)   ACCEPTED  REFUSED',
    '2026-01-13  0         1        ░',
    '2026-01-14  0         0',
    '2026-01-15  90        10       ███████████████████░░',
  ]);
  const plain = ['DAY (UTC)   ACCEPTED  REFUSED', '2026-01-13  0         1', '2026-01-14  0         0'];
  t.same(chartLines(rows, { ...options, width: Infinity }), [...plain, '2026-01-15  90        10']);
  t.same(chartLines(rows, { ...options, width: 35 }).slice(0, 3), plain, 'no bars without room');
  t.end();
});

t.test('refusals are shown with their reason, and followed without loss', async (t) => {
  const { command, id, send, access } = await usageCommands(t);
  const details = { at: now, path: '/v1/\u009b31mpayouts' };
  await send({ merchants: [merchantUsage(id, { refusals: [refusal('r-1', details), refusal('r-2', details)] })] });
  const shown = await command('refusals', '--merchant', id, '--per-page', '1');
  t.match(
    shown.out,
    /^refused +20.* live 401 ip_not_allowed: IP address not allowed\nmeaning +\w.*\nremedy +\w.*\nrequest +GET \/v1\/\\u009b31mpayouts\n/,
  );
  t.match(shown.out, /request id +r-2\nid +2\n\n1 of 2 refusals: page 1 of 2/);
  t.match((await command('refusals', '--merchant', id, '--after', '1')).out, /request id +r-2\n[^]*\n1 refusal.\n/);

  let out = '';
  let pauses = 0;
  const pause = async (): Promise<boolean> => {
    pauses += 1;
    const many = Array.from({ length: 150 }, (_, index) => refusal(`late-${index}`, details));
    if (pauses === 1) await send({ merchants: [merchantUsage(id, { refusals: many })] });
    return pauses < 3;
  };
  const io = { out: (text: string) => (out += text), err: () => undefined };
  const following = refusalsCommand(io, {}, pause);
  await following.parseAsync(['--merchant', id, '--follow', '--json', ...access], { from: 'user' });
  const ids = out
    .trim()
    .split('\n')
    .map((line) => (JSON.parse(line) as { id: number }).id);
  t.same(
    ids,
    Array.from({ length: 152 }, (_, index) => index + 1),
  );
  t.match(await command('refusals', '--merchant', id, '--follow', '--page', '1'), { status: 2 });
});

t.test('addresses are shown, an allowlist is judged, and the usage of a merchant is forgotten', async (t) => {
  const { command, id, keyId, send } = await usageCommands(t);
  const addresses = [addressCount('192.0.2.1', 5, { day }), addressCount(null, 2, { day })];
  await send({ keys: [keyUsage(keyId, { merchantId: id, addresses })] });
  t.match(
    (await command('merchants', 'addresses', id)).out,
    /^DAY +ADDRESS[^]*192.0.2.1 [^]*all others[^]*\n2 rows.\n$/,
  );
  const judged = await command('merchants', 'addresses', id, '--allow', '198.51.100.0/24', '--allow', '203.0.113.1');
  t.match(
    judged.out,
    /accepted requests +7\nwould be refused +5 from 1 address\nuncertain +2 of the accepted requests \(the registry stored no address[^]*192.0.2.1 +5 /,
  );
  t.match(await command('merchants', 'forget-usage', id), {
    status: 2,
    err: new RegExp(`confirm it with --confirm ${id}`),
  });
  t.match(await command('merchants', 'forget-usage', id, '--confirm', id), {
    status: 0,
    out: /^Deleted the usage and findings .*\(2 database rows\)/,
  });
  t.match((await command('merchants', 'addresses', id)).out, /^No rows\.\n$/);
});
