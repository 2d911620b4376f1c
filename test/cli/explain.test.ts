import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import fc from 'fast-check';
import t from 'tap';
import type { Test } from 'tap';
import { MemoryRecords } from '../../src/adapters/memory/memory-records.js';
import type { StoredRecords } from '../../src/adapters/memory/memory-records.js';
import { explainCommand } from '../../src/cli/explain/explain.js';
import { loadConfig } from '../../src/config/load.js';
import type { TorExits } from '../../src/gateway/ports.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import { explainRequest } from '../../src/edge/explain-request.js';
import { remedies } from '../../src/policy/remedies.js';
import { createRouteTable } from '../../src/edge/request/routes.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import { denials } from '../../src/policy/decision-table.js';
import { Seals } from '../../src/adapters/redis/seal.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import {
  ask,
  connect,
  exchangeBytes,
  liveKey,
  parseResponse,
  recordsOf,
  requestBytes,
  startTestGateway,
  startUpstream,
  testKey,
} from '../edge/harness.js';
import { address } from '../policy/fixtures.js';
import { until } from '../telemetry/open-log.js';
import { ran } from './ran.js';

const exit = '198.51.100.66';
const untold = '198.51.100.67';
const exits: TorExits = {
  has: ({ text }) => (text === untold ? null : text === exit),
  digest: 'ab',
  unavailableReason: () => null,
  status: () => ({ available: true, digest: 'ab', size: 1, ageSeconds: 0, sources: [] }),
  close: () => Promise.resolve(),
};

const allowlists = { ipAllowlist: ['192.0.2.0/24'], originAllowlist: ['shop.example'] };
const listedKey = 'svc_live_listed00000000';
const revokedKey = 'svc_live_revoked0000000';
const expiredKey = 'svc_live_expired0000000';
const orphanKey = 'svc_live_orphan00000000';

function records(): StoredRecords {
  const orphan = recordsOf(orphanKey, { key: { keyId: 'key_o', merchantId: 'm_o' } });
  return {
    ...Object.fromEntries(Object.entries(orphan).filter(([name]) => name !== 'mg:merchant:m_o')),
    ...recordsOf(liveKey),
    ...recordsOf(testKey, { key: { keyId: 'key_t' } }),
    ...recordsOf(listedKey, {
      key: { keyId: 'key_l', merchantId: 'm_l', permissions: ['payouts:read'], revision: 7 },
      merchant: { ...allowlists, revision: 12 },
    }),
    ...recordsOf(revokedKey, { key: { keyId: 'key_r', status: 'REVOKED' } }),
    ...recordsOf(expiredKey, { key: { keyId: 'key_e', expiresAt: '2021-01-01T00:00:00.000Z' } }),
  };
}

/** Mostly values that pass, so that later rules are reached. */
const mostly = <T>(good: readonly T[], ...others: readonly T[]): fc.Arbitrary<T> =>
  fc.oneof({ weight: 7, arbitrary: fc.constantFrom(...good) }, { weight: 2, arbitrary: fc.constantFrom(...others) });
/** A header, usually once and with a value that passes. */
const header = (name: string, good: readonly string[], ...others: readonly string[]) => {
  const values = fc.oneof(
    { weight: 8, arbitrary: mostly(good, ...others).map((value) => [value]) },
    { weight: 1, arbitrary: fc.subarray([...good, ...others], { maxLength: 2 }) },
  );
  return values.map((chosen) => chosen.map((value) => [name, value] as const));
};

/** Requests in which each part may pass or cause a rejection. */
const anyRequest = fc.record({
  method: mostly(['GET'], 'POST', 'DELETE', 'TRACE'),
  path: mostly(
    ['/v1/payouts'],
    ...['/v1/transactions/7?a=b', '/v1/transactions/a;b=%61', '/v1/nowhere', '/v1//payouts', '/payouts'],
    ...['/v1/%70ayouts', '/v1/dev/Payouts', '/v1/dev/payouts.json', '/v1/payouts/..;/x'],
  ),
  host: mostly<string | null>(['shop.example'], 'localhost', 'a.onion', 'shop.example:8443', 'no host', null),
  key: header('X-Api-Key', [liveKey, listedKey], testKey, revokedKey, orphanKey, 'svc_live_unknown', 'sk_live_1', ''),
  origin: header('Origin', ['https://shop.example'], 'https://evil.example', 'null'),
  referer: header('referer', ['https://shop.example/till'], 'http://abcdef.onion/'),
  forwardedFor: header(
    'X-Forwarded-For',
    ['192.0.2.7', '::ffff:192.0.2.7', '10.1.1.1, 192.0.2.8, 10.0.0.1'],
    ...['203.0.113.9', `192.0.2.7, ${exit}`, untold, '10.0.0.1', 'unknown', '192.0.2.7:80', ''],
  ),
  proto: mostly<string | null>(['https'], 'http', 'HTTPS', null),
});

t.test('explain gives the same decision as the gateway for any request', async (t) => {
  const upstream = await startUpstream(t);
  const seen = new Set<string>();
  let compared = 0;
  for (const environment of ['live', 'test'] as const) {
    const text = JSON.stringify({ environment, trustedProxies: ['127.0.0.1', '10.0.0.0/8'] });
    const keyStore = new RecordKeyStore(new MemoryRecords(records()));
    const gateway = await startTestGateway(t, {
      ...{ upstreamUrl: upstream.url, keyStore, torExits: exits },
      config: { environment, trustedProxies: ['127.0.0.1', '10.0.0.0/8'], throttle: { enabled: false } },
    });
    const config = loadConfig({ text });
    const sources = {
      ...{ environment, torExits: exits, geoIp: null, keyStore, pepper: null },
      trustedProxies: compileIpRanges(config.trustedProxies),
      routes: createRouteTable(config),
      headLimits: config.limits,
      maxBodyBytes: config.limits.bodyBytes,
    };
    await fc.assert(
      fc.asyncProperty(anyRequest, async ({ method, path, host, key, origin, referer, forwardedFor, proto }) => {
        const protos = proto === null ? [] : [['X-Forwarded-Proto', proto] as const];
        const headers = [...key, ...origin, ...referer, ...forwardedFor, ...protos];
        const count = gateway.lines.length;
        const bytes = requestBytes({ method, path, host, headers });
        const response = parseResponse(await exchangeBytes(connect(gateway.http, null), bytes));
        await until(() => gateway.lines.length > count);
        const line = gateway.lines.at(-1) as { event: { code: string; reason?: string }; client: { ip?: string } };
        const explained = await explainRequest(
          {
            ...{ method, target: path, remote: address('127.0.0.1'), tls: false, at: Date.now() },
            headers: [...(host === null ? [] : [['Host', host] as const]), ...headers, ['Connection', 'close']],
          },
          sources,
        );
        const { code, detail, facts, hops, rules } = explained;
        seen.add(code);
        t.equal(code, line.event.code, bytes);
        if (detail !== null) t.equal(detail, line.event.reason, bytes);
        compared += 1;
        if (facts !== null) t.equal(facts.clientAddress.text, line.client.ip, bytes);
        if (line.client.ip !== undefined) t.equal(hops.at(-1)?.address.text, line.client.ip, bytes);
        const decisive = rules.find(({ result }) => result !== 'passes');
        const ofRule = denials.some((denial) => denial.code === code);
        if (ofRule) t.same([decisive?.code, decisive?.result], [code, 'fails']);
        else if (decisive !== undefined) t.match(code, /_unavailable$/);
        return code === 'accepted' ? response.status === 200 : response.status >= 400;
      }),
      { seed: 20261120, numRuns: environment === 'live' ? 300 : 100 },
    );
  }
  t.ok(compared >= 374, `${compared} lines have the code that explain gives`);
  const wanted = ['accepted', 'https_required', 'tor_blocked', 'key_required', 'key_format', 'key_unknown'];
  const others = [
    'ip_not_allowed',
    'test_key_in_live',
    'invalid_host',
    'invalid_forwarded_for',
    'invalid_path',
    'not_found',
  ];
  t.same(
    [...wanted, ...others].filter((code) => !seen.has(code)),
    [],
    'most decisions have occurred',
  );
});

function explain(...args: string[]) {
  return ran('explain', ...args);
}

async function explainWithInput(input: string, ...args: string[]): Promise<string> {
  let out = '';
  const io = { out: (text: string) => (out += text), err: () => undefined };
  await explainCommand(io, Readable.from([Buffer.from(input)])).parseAsync(args, { from: 'user' });
  return out;
}

function configOf(t: Test, more: object = {}): string {
  const directory = t.testdir({ 'records.json': JSON.stringify(records()) });
  const keyStore = { kind: 'memory', memory: { recordsFile: `${directory}/records.json` } };
  const config = { trustedProxies: ['10.0.0.0/8'], torExits: { enabled: false }, keyStore, ...more };
  writeFileSync(`${directory}/config.yaml`, JSON.stringify(config));
  return `${directory}/config.yaml`;
}

t.test('explain shows each rule with its input, and how the client address was determined', async (t) => {
  const config = configOf(t);
  const described = [
    '--config',
    config,
    '--key-id',
    'key_l',
    '--path',
    '/v1/payouts',
    '--header',
    'Origin: https://shop.example',
  ];
  const proxied = [...described, '--address', '10.0.0.1', '--header', 'X-Forwarded-For: 1.2.3.4, 192.0.2.9, 10.0.0.2'];
  const accepted = await explain(...proxied);
  t.match(accepted, { status: 0, err: '' });
  const translated = await explain(...described, '--address', '64:ff9b::192.0.2.9');
  t.match(
    translated.out,
    /^64:ff9b::c000:209 +the connection, over TLS +no +the client; its IPv6 address contains the IPv4 address 192\.0\.2\.9$/m,
  );
  t.match(
    translated.out,
    /^ip_not_allowed +passes +clientAddress: 64:ff9b::c000:209; embeddedAddress: 192\.0\.2\.9; /m,
  );
  t.match(JSON.parse((await explain(...described, '--address', '2002:c000:209::1', '--json')).out), {
    clientAddress: '2002:c000:209::1',
    embeddedAddress: '192.0.2.9',
  });
  for (const line of [
    /^key +key_l \(revision 7\) of m_l \(revision 12\)$/m,
    /^10\.0\.0\.1 +the connection, over TLS +yes$/m,
    /^10\.0\.0\.2 +X-Forwarded-For +yes$/m,
    /^192\.0\.2\.9 +X-Forwarded-For +no +the client$/m,
    /^https_required +passes +secure: true$/m,
    /^ip_not_allowed +passes +clientAddress: 192\.0\.2\.9; merchant\.ipAllowlist: \[192\.0\.2\.0\/24\]$/m,
    /^permission_denied +passes +resource: payouts; access: read; key\.permissions: \[payouts:read\]$/m,
    /^Verdict: accepted\.$/m,
  ]) {
    t.match(accepted.out, line);
  }
  t.notMatch(accepted.out, '1.2.3.4', 'a value from an untrusted hop is ignored');
  const refused = await explain(...described, '--address', '203.0.113.5', '--method', 'POST', '--json');
  const view = JSON.parse(refused.out) as { rules: { code: string; result: string; decides: boolean; saw: object }[] };
  t.match(view, {
    verdict: {
      ...{ code: 'ip_not_allowed', status: 401, message: 'IP address not allowed' },
      remedy: remedies.ip_not_allowed.remedy,
    },
    clientAddress: '203.0.113.5',
    key: { keyId: 'key_l', merchantId: 'm_l', revision: 7, merchantRevision: 12 },
  });
  t.same(
    view.rules.map(({ code }) => code),
    denials.map(({ code }) => code),
  );
  t.same(
    view.rules.filter(({ decides }) => decides).map(({ code }) => code),
    ['ip_not_allowed'],
  );
  t.match(
    view.rules.find(({ code }) => code === 'permission_denied'),
    { result: 'fails', saw: { resource: 'payouts', access: 'write', 'key.permissions': ['payouts:read'] } },
  );
  t.match(
    (await explain(...described, '--address', '192.0.2.1', '--plain')).out,
    /^https_required +FAILS \(decisive\)/m,
  );
  const lost = ['--config', config, '--address', '192.0.2.1', '--path', '/v1/payouts'];
  t.match(
    (await explain(...lost, '--key-id', 'key_o')).out,
    /Verdict: key_store_unavailable, 503 .*the record of merchant \S+ is missing/,
  );
  t.match((await explain(...lost, '--merchant', 'm_l')).out, /^key +key_l/m);
  for (const [at, verdict] of [
    ['2020-12-31T23:59:59.999Z', 'accepted.'],
    ['2021-01-01T00:00:00.000Z', 'key_inactive, 401'],
  ] as const)
    t.match((await explain(...lost, '--key-id', 'key_e', '--at', at)).out, `Verdict: ${verdict}`, at);
  t.match(await explainWithInput(`${revokedKey}\n`, ...lost, '--key-stdin'), 'Verdict: key_inactive, 401');
  t.match(
    await explainWithInput('svc_live_nobody\n', ...lost, '--key-stdin'),
    /unknown to the key store[^]*key_unknown/,
  );
  t.match((await explain(...lost, '--key-id', 'key_none')).err, 'The key store has no key key_none.');
});

t.test('a log line is explained and compared with its recorded decision', async (t) => {
  const gateway = await startTestGateway(t, { records: records(), config: { trustedProxies: ['127.0.0.1'] } });
  const config = configOf(t, { trustedProxies: ['127.0.0.1'] });
  const proxied = [['x-forwarded-for', '203.0.113.5']] as const;
  await ask(gateway, { path: '/v1/payouts', headers: [['x-api-key', listedKey], ...proxied] });
  await exchangeBytes(connect(gateway.http, null), requestBytes({ headers: [['x-api-key', liveKey]] }));
  await ask(gateway, {
    headers: [
      ['x-api-key', revokedKey],
      ['x-forwarded-proto', 'http'],
    ],
  });
  await ask(gateway, {});
  await until(() => gateway.lines.length === 4);
  for (const line of gateway.lines) {
    const { event } = line as { event: { code: string } };
    const text = `${JSON.stringify(line)}\n`;
    const view = JSON.parse(await explainWithInput(text, '--config', config, '--line', '-', '--json')) as object;
    t.match(view, { verdict: { code: event.code }, logged: { code: event.code, same: true } }, event.code);
  }
  const [first] = gateway.lines;
  const changed = JSON.stringify(first).replace('203.0.113.5', '192.0.2.1');
  const text = await explainWithInput(
    changed,
    '--config',
    config,
    '--line',
    '-',
    '--header',
    'Origin: https://shop.example',
  );
  t.match(
    text,
    /Verdict: accepted\.\nThe log line has the verdict ip_not_allowed\. The verdict above can differ, because it is based on the current records and lists/,
  );
  await t.rejects(
    explainWithInput(`${changed}\n${changed}\n`, '--config', config, '--line', '-'),
    /more than one request/,
  );
  await t.rejects(explainWithInput('{}\n', '--config', config, '--line', '-'), /no access-log line of a request/);
});

t.test('the code of a line shows that a key was sent, although the log has no fingerprints', async (t) => {
  for (const [environment, key, code] of [
    ['live', 'svc_live_unknown0000000', 'key_unknown'],
    ['live', 'svc_test_unknown0000000', 'test_key_in_live'],
    ['test', 'svc_test_unknown0000000', 'key_unknown'],
    ['test', 'svc_live_unknown0000000', 'live_key_in_test'],
  ] as const) {
    const gateway = await startTestGateway(t, { records: records(), config: { environment } });
    await ask(gateway, { headers: [['x-api-key', key]] });
    await until(() => gateway.lines.length === 1);
    const [line] = gateway.lines;
    const about = `${environment} ${code}`;
    t.match(line, { gateway: { key: undefined }, event: { code } }, about);
    const text = `${JSON.stringify(line)}\n`;
    const view = await explainWithInput(text, '--config', configOf(t, { environment }), '--line', '-', '--json');
    t.match(JSON.parse(view), { verdict: { code }, logged: { code, same: true } }, about);
  }
});

t.test('a usage error is reported without repeating a key', async (t) => {
  const where = ['--address', '192.0.2.1', '--path', '/v1/payouts', '--config', configOf(t)];
  for (const wrong of [
    ['--path', `/v1/${liveKey}`],
    ['--header', `X-API-Key: ${liveKey}`],
    ['--header', 'x-api-key: other'],
    ['--header', `Cookie: ${liveKey}`],
    ['--key-id', liveKey],
    ['--merchant', liveKey],
    ['--key-id', 'a', '--merchant', 'b'],
    ...[['--method', 'get it'], ['--header', 'no colon'], ['--address', '192.0.2.1:80'], ['--at', 'noon'], ['extra']],
  ]) {
    const { status, out, err } = await explain(...where, ...wrong);
    t.equal(status, 2, wrong.join(' '));
    t.equal(out, '');
    t.notMatch(err, 'TestOnly');
  }
  t.match(await explain('--address', '192.0.2.1'), { status: 2, err: /give the path/ });
  t.match(await explain('--path', '/v1'), { status: 2, err: /give the source address/ });
});

t.test('explain reads the records from Redis like a gateway', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const keyStore = { kind: 'redis', redis: { url: server.url, prefix: 'x:' } };
  const args = ['--config', configOf(t, { keyStore }), '--address', '192.0.2.1', '--path', '/v1/payouts'];
  t.match((await explain(...args, '--key-id', 'key_l')).err, 'The key store has no key key_l.');
  const stored = Object.entries(records()).filter(([name]) => name !== 'mg:meta');
  for (const [name, record] of stored) await server.client.set(name.replace('mg:', 'x:'), JSON.stringify(record));
  await server.client.set('x:key:broken', 'no JSON');
  t.match(
    (await explain(...args, '--key-id', 'key_l')).out,
    'Verdict: key_store_unavailable, 503',
    'the store has no meta record',
  );
  await server.client.set('x:meta', JSON.stringify(records()['mg:meta']));
  t.match((await explain(...args, '--key-id', 'key_l')).out, 'Verdict: origin_not_allowed, 401');
  t.match(
    (await explain(...args, '--merchant', 'm_1')).out,
    /^key +key_1 /m,
    'the active key of the environment, not the expired one',
  );
  const merchant = (await server.client.get('x:merchant:m_l')) ?? '';
  await server.client.set('x:merchant:m_l', merchant.replace('{', '{"status":"ACTIVE",'));
  t.match(
    (await explain(...args, '--key-id', 'key_l')).out,
    'Verdict: key_store_unavailable, 503',
    'a duplicate member',
  );
  const left = await server.client.keys('*gateway*');
  t.same(left, [], 'explain does not announce itself as a gateway');
  await server.kill();
  t.match(await explain(...args, '--key-id', 'key_l'), { status: 1, err: /^Redis at redis:.* is unavailable/ });
});

t.test('with the record secret, explain reports whether the records are sealed', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const secret = 'a secret of the tests, which is long enough';
  const keyStore = { kind: 'redis', redis: { url: server.url, prefix: 'x:' } };
  const recordSecretFile = path.join(path.dirname(configOf(t)), 'secret');
  const file = configOf(t, { keyStore, keys: { recordSecretFile } });
  writeFileSync(recordSecretFile, secret);
  const seals = new Seals([Buffer.from(secret)]);
  for (const [name, record] of Object.entries(records())) {
    const full = name.replace('mg:', 'x:');
    await server.client.set(full, seals.seal(full, JSON.stringify({ ...(record as object), generation: '01EXPLAIN' })));
  }
  const args = ['--config', file, '--address', '192.0.2.1', '--path', '/v1/payouts', '--key-id', 'key_l'];
  const proven = await explain(...args);
  t.match(proven.out, /^seals +valid: the HMACs of the records and of mg:meta match$/m);
  t.match(proven.out, 'Verdict: origin_not_allowed, 401');
  t.match(JSON.parse((await explain(...args, '--json')).out), { seals: { proven: true, problem: null } });
  await server.client.set('x:merchant:m_l', JSON.stringify(records()['mg:merchant:m_l']));
  const forged = await explain(...args);
  t.match(forged.out, /^seals +x:merchant:m_l: the record is not sealed$/m);
  t.match(forged.out, 'Verdict: key_store_unavailable, 503');
});

t.test('explain reports a record of an earlier generation than the meta record', { skip: withoutRedis }, async (t) => {
  const server = await startRedis(t);
  const file = configOf(t, { keyStore: { kind: 'redis', redis: { url: server.url, prefix: 'x:' } } });
  const own = '01EXPLAIN';
  const put = (name: string, generation?: string) =>
    server.client.set(name.replace('mg:', 'x:'), JSON.stringify({ ...(records()[name] as object), generation }));
  for (const name of Object.keys(records())) await put(name, own);
  const args = ['--config', file, '--address', '192.0.2.1', '--path', '/v1/payouts', '--key-id', 'key_l'];
  const good = await explain(...args);
  t.notMatch(good.out, /^generation/m);
  t.match(good.out, 'Verdict: origin_not_allowed, 401');
  for (const believed of ['02LATER', undefined]) {
    await put('mg:merchant:m_l', believed);
    t.match(
      (await explain(...args)).out,
      'Verdict: origin_not_allowed, 401',
      `decides like a gateway: ${String(believed)}`,
    );
  }
  await put('mg:merchant:m_l', '00EARLIER');
  const problem =
    'x:merchant:m_l: the record was written before the last rebuild of the store, so the record may be outdated. Its generation is missing, or earlier than the generation in x:meta';
  const earlier = await explain(...args);
  t.match(earlier.out, new RegExp(`^generation +${problem}$`, 'm'));
  t.match(earlier.out, 'Verdict: key_store_unavailable, 503');
  t.match(JSON.parse((await explain(...args, '--json')).out), { generationProblem: problem, seals: null });
});
