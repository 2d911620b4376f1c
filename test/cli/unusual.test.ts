import { readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import path from 'node:path';
import t from 'tap';
import { loadConfig } from '../../src/config/load.js';
import { UnusualUse } from '../../src/registry/unusual/unusual-use.js';
import { openLog } from '../telemetry/open-log.js';
import { keyUsage } from '../usage/key-usage.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { ran } from './ran.js';

const day = 86_400_000;
const start = Date.UTC(2026, 2, 2, 9);

/** A request as a gateway logs it. */
function line(at: number, fields: { ip: string; country?: string; as?: number; code?: string; key?: object }): string {
  const { ip, country, as, code = 'accepted', key = { id: 'key_1' } } = fields;
  return JSON.stringify({
    '@timestamp': new Date(at).toISOString(),
    http: { request: { id: 'r', method: 'GET' }, response: { status_code: 200 } },
    url: { path: '/v1/payouts' },
    client: {
      ip,
      ...(country === undefined ? {} : { geo: { country_iso_code: country } }),
      ...(as ? { as: { number: as } } : {}),
    },
    organization: { id: 'm_1' },
    gateway: { key, environment: 'live' },
    user_agent: { original: 'axios/1.7' },
    event: { action: 'api-request', code },
  });
}

/** Writes the lines to a log with a hash chain. Returns the path of the log. */
async function logOf(folder: string, name: string, lines: readonly string[]): Promise<string> {
  const file = path.join(folder, name);
  const log = openLog(file);
  for (const one of lines) log.write(one);
  await log.close(30_000);
  return file;
}

const home = { ip: '203.0.113.7', country: 'NG', as: 64_500 };

t.test('replay reports what the rules would have, in logs of several gateways and in .gz files', async (t) => {
  const folder = t.testdir();
  const days = Array.from({ length: 12 }, (_, number) => line(start + number * day, home));
  const abroad = line(start + 10 * day + 3_600_000, { ip: '198.51.100.1', country: 'KE', as: 64_999 });
  const tor = line(start + day, { ip: '192.0.2.1', code: 'tor_blocked', key: { fingerprint: 'f'.repeat(32) } });
  const one = await logOf(folder, 'one.log', days);
  const other = await logOf(folder, 'other.log', [tor, abroad]);
  const packed = `${other}.gz`;
  writeFileSync(packed, gzipSync(readFileSync(other)));
  const json = await ran('unusual', 'replay', '--json', packed, one);
  t.equal(json.status, 0);
  t.match(JSON.parse(json.out), {
    ...{ requests: 14, keys: 2, from: '2026-03-02T09:00:00.000Z', hasCountries: true },
    findings: [
      { key: 'f'.repeat(32), rule: 'tor' },
      { key: 'key_1', merchant: 'm_1', rule: 'new-country', kind: 'new-country:KE', address: '198.51.100.1' },
    ],
  });
  const text = await ran('unusual', 'replay', one, packed);
  t.match(text.out, /SEEN +MERCHANT +KEYID +RULE +WHAT\n.*tor.*\n.*new-country +first use in KE/);
  t.match(text.out, /2 findings in 14 requests of 2 keys, from 2026-03-02/);
  const config = path.join(folder, 'off.yaml');
  writeFileSync(config, 'registry: { unusual: { off: [tor, new-country, new-network] } }');
  t.match(await ran('unusual', 'replay', '--config', config, one, packed), { out: /^0 findings/ });
});

t.test('replay says which rules are off, which lines it ignored and which files cannot be read', async (t) => {
  const folder = t.testdir();
  const file = await logOf(folder, 'access.log', [line(start, { ip: '203.0.113.7' })]);
  t.match(await ran('unusual', 'replay', file), {
    status: 0,
    err: /No line has a country.*the rules new-country and new-network/,
  });
  writeFileSync(file, `${line(start, home)}\n`);
  t.match(await ran('unusual', 'replay', file), { out: /No request found/, err: /1 line .* is ignored/ });
  t.match(await ran('unusual', 'replay', `${file}.none`), {
    status: 1,
    err: /cannot be read: there is no such file/,
  });
  t.match(await ran('unusual', 'replay'), { status: 2, err: /give the log files/ });
  t.match(await ran('unusual', 'replay', ...Array.from({ length: 65 }, () => file)), {
    status: 2,
    err: /give at most 64 files/,
  });
});

t.test('findings are listed, shown and answered', async (t) => {
  const use = new UnusualUse({ thresholds: loadConfig({}).registry.unusual, targets: ['one'] });
  const { app, database, createMerchant, createKey, time } = await registryFixture(t, 'sqlite::memory:', {
    unusual: { use, targets: [] },
  });
  const { id } = await createMerchant({ status: 'ACTIVE', goLive: true });
  const { keyId } = await createKey(id);
  await database.transaction().execute((transaction) =>
    use.observe(
      transaction,
      {
        ...({ version: 1, process: 'p', instance: 'g', environment: 'live', isLast: false, sequence: 1 } as const),
        ...{ acknowledged: 0, from: 0, to: 0, dropped: { refusals: 0 }, merchants: [] },
        ...{
          keys: [keyUsage(keyId, [{ at: time.now(), code: 'tor_blocked', country: null, asNumber: null }])],
          unknown: { codes: [], addresses: [] },
        },
      },
      time.now(),
    ),
  );
  await app.listen({ host: '127.0.0.1', port: 0 });
  const address = app.server.address();
  const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
  const tokenFile = path.join(t.testdir(), 'token');
  writeFileSync(tokenFile, token, { mode: 0o600 });
  const admin = (...args: readonly string[]) =>
    ran('unusual', ...args, '--registry', `http://127.0.0.1:${port}`, '--token-file', tokenFile);
  const listed = await admin('list');
  t.equal(listed.status, 0, listed.err);
  t.match(listed.out, /ID +SEEN +MERCHANT +KEYID +WHAT +ANSWER\n.*1 request from a Tor exit/);
  t.match(listed.out, /1 finding\.\nOff: new-country, because no gateway has sent the country/);
  const [finding = ''] = /unu_\w+/.exec(listed.out) ?? [];
  t.match(await admin('show', finding), { out: /rule +tor\n.*kind +tor\n/s });
  t.match(await admin('answer', finding, 'maybe'), { status: 2, err: /one of fine, revoked, look/ });
  t.match(await admin('answer', finding, 'fine'), { status: 0, out: /answer +fine, by bootstrap/ });
  t.match(await admin('list'), { out: /No findings\./ });
  t.match(await admin('list', '--all', '--rule', 'tor', '--key-id', keyId), { out: /1 finding\./ });
  t.match(await admin('answer', finding, 'revoked'), { status: 0, out: /answer +revoked[^]*No gateway is running/ });
  t.match(await admin('webhooks'), { out: /Every webhook was delivered/ });
  t.match(await admin('show', 'a b'), {
    status: 2,
    err: /the id of a finding must consist of .*\. To see the ids, run "merchant-gateway unusual list"/,
  });
});
