import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { serialise } from '../../src/telemetry/serialise.js';
import type { Test } from 'tap';
import { readLogLines } from '../../src/audit/log-lines.js';
import { fingerprintCommand } from '../../src/cli/audit/fingerprint.js';
import { logSecretOf } from '../../src/telemetry/chain.js';
import { keyFingerprint } from '../../src/telemetry/key-fingerprint.js';
import { openLog, testSecret } from '../telemetry/open-log.js';
import { type Outcome, ran } from './ran.js';

const audit = (...args: string[]): Promise<Outcome> => ran('audit', ...args);

interface Request {
  readonly at: string;
  readonly code: string;
  readonly address: string;
  readonly proxy?: string;
  readonly key?: string;
  readonly merchant?: string;
  readonly path?: string;
  readonly id?: string;
  readonly country?: string;
  readonly fingerprint?: string;
}

function lineOf({ at, code, address, proxy, key, merchant, path, id, country, fingerprint }: Request): object {
  return {
    '@timestamp': `2024-11-20T${at}:00.000Z`,
    http: { request: { id: id ?? 'r', method: 'GET' }, response: { status_code: code === 'accepted' ? 200 : 401 } },
    url: { path: path ?? '/v1/payouts' },
    client: { ip: address, geo: country === undefined ? undefined : { country_iso_code: country } },
    source: { ip: proxy ?? address },
    organization: merchant === undefined ? undefined : { id: merchant },
    gateway: { key: { id: key, fingerprint } },
    event: { action: 'api-request', code, duration: 1000, ...(code === 'accepted' ? {} : { reason: `why ${code}` }) },
  };
}

const hostile = '</td><script>alert(1)</script>"\u202e\u009b[2J';
const requests: readonly Request[] = [
  {
    at: '10:00',
    code: 'accepted',
    address: '192.0.2.1',
    key: 'key_a',
    merchant: 'm_a',
    path: '/v1/payouts/1',
    id: 'r1',
    country: 'NL',
  },
  {
    at: '10:01',
    code: 'accepted',
    address: '192.0.2.1',
    key: 'key_a',
    merchant: 'm_a',
    path: '/v1/payoutsx',
    id: 'r2',
    country: 'NL',
  },
  {
    at: '10:02',
    code: 'ip_not_allowed',
    address: '198.51.100.7',
    key: 'key_a',
    merchant: 'm_a',
    id: 'r3',
    country: 'DE',
  },
  { at: '10:03', code: 'key_unknown', address: '2001:db8::1', fingerprint: 'ab'.repeat(16), id: 'r4' },
  {
    at: '11:00',
    code: 'https_required',
    address: '192.0.2.9',
    proxy: '10.0.0.1',
    key: 'key_b',
    merchant: 'm_b',
    id: 'r5',
  },
  { at: '11:30', code: 'tor_blocked', address: '198.51.100.7', fingerprint: 'cd'.repeat(16), id: 'r6' },
  { at: '12:00', code: 'key_unknown', address: '198.51.100.7', merchant: hostile, path: `/${hostile}`, id: 'r7' },
];

async function logOf(t: Test): Promise<{ file: string; secretFile: string }> {
  const directory = t.testdir({ secret: 'a secret of the tests alone\n' });
  const file = `${directory}/access.log`;
  const log = openLog(file);
  for (const request of requests) log.write(serialise(lineOf(request)));
  await log.close(30_000);
  return { file, secretFile: `${directory}/secret` };
}

t.test('audit verify confirms an intact log, also compressed, and locates changes in another', async (t) => {
  const { file, secretFile } = await logOf(t);
  const intact = await audit('verify', '--secret-file', secretFile, file);
  t.strictSame(intact, { status: 0, out: 'Intact: 9 lines of 7 requests, 1 chain, 0 findings.\n', err: '' });
  writeFileSync(`${file}.gz`, gzipSync(readFileSync(file)));
  t.equal((await audit('verify', '--secret-file', secretFile, `${file}.gz`)).status, 0);
  const config = `${file}.yaml`;
  writeFileSync(config, JSON.stringify({ accessLog: { secretFile } }));
  t.equal((await audit('verify', '--config', config, file)).status, 0);

  writeFileSync(`${file}.empty`, '');
  const running = ['verify', '--running', '--secret-file', secretFile];
  t.match(await audit(...running, file, `${file}.empty`), {
    status: 0,
    out: /empty:1: the file is empty: the gateway/,
  });
  t.match(await audit(...running, `${file}.empty`, file), { status: 1, out: /empty:1: truncated: the file is empty/ });

  writeFileSync(file, readFileSync(file, 'utf8').replace('ip_not_allowed', 'accepted'));
  const edited = await audit('verify', '--secret-file', secretFile, file);
  t.equal(edited.status, 1);
  t.match(edited.out, `${file}:4: edited: line 4 of the chain was changed: its hash does not match\n`);
  t.match(edited.err, 'The log is NOT INTACT: 9 lines of 7 requests, 1 chain, 1 finding.');
  const asJson = await audit('verify', '--json', '--secret-file', secretFile, file);
  t.match(JSON.parse(asJson.out), { intact: false, lines: 9, findings: [{ file, line: 4, kind: 'edited' }] });

  t.match(await audit('verify', file), { status: 1, err: /hashed with a secret: name the secret file/ });
  t.equal((await audit('verify')).status, 2);
  writeFileSync(`${file}.gz`, readFileSync(file));
  t.match(await audit('verify', '--secret-file', secretFile, `${file}.gz`), {
    status: 1,
    err: /cannot be read: it is damaged, or not a gzip file/,
  });
});

t.test('after the secret was replaced, --secret-file adds the old one to the configured one', async (t) => {
  const { file, secretFile } = await logOf(t);
  const log = openLog(file, { secret: logSecretOf(Buffer.from('the next secret of the tests')) });
  log.write(serialise(lineOf({ at: '13:00', code: 'accepted', address: '192.0.2.1' })));
  await log.close(30_000);
  writeFileSync(`${file}.secret`, 'the next secret of the tests\n');
  const config = `${file}.yaml`;
  writeFileSync(config, JSON.stringify({ accessLog: { secretFile: `${file}.secret` } }));

  const hint = /no line of the chain \w{26} could be verified: .* add its file with another --secret-file/;
  t.match(await audit('verify', '--config', config, file), { status: 1, out: hint });
  const both = ['--config', config, '--secret-file', secretFile];
  const intact = { status: 0, out: 'Intact: 12 lines of 8 requests, 2 chains, 0 findings.\n', err: '' };
  t.strictSame(await audit('verify', ...both, file), intact);
  t.strictSame(await audit('verify', '--secret-file', `${file}.secret`, '--secret-file', secretFile, file), intact);
  t.match(await audit('summary', '--verify', ...both, file), { status: 0, out: /\nIntact: 0 findings in 12 lines, / });
  writeFileSync(config, JSON.stringify({ accessLog: { secretFile: `${file}.gone` } }));
  t.match(await audit('verify', ...both, file), {
    status: 1,
    err: /^The secret of the access log \S+\.gone cannot be read: there is no such file\.\n$/,
  });
});

t.test('audit verify reports findings from before an unreadable file, and why it is unreadable', async (t) => {
  const { file, secretFile } = await logOf(t);
  const verify = (...args: string[]): Promise<Outcome> => audit('verify', '--secret-file', secretFile, ...args);
  const gone = `${file}.2`;
  t.strictSame(await verify(gone), {
    status: 1,
    out: '',
    err: `${gone} cannot be read: there is no such file.\n`,
  });
  t.match(await verify(path.dirname(file)), { status: 1, err: / cannot be read: it is a directory\.\n$/ });
  const whole = await verify(file, gone);
  t.strictSame([whole.status, whole.out], [1, ''], 'an unreadable file is never reported as intact');
  t.match(whole.err, 'there is no such file. Read before the failure: 9 lines of 7 requests, 1 chain, 0 findings.\n');
  t.match(JSON.parse((await verify('--json', file, gone)).out), { intact: false, unreadable: gone, findingCount: 0 });
  t.match(JSON.parse((await verify('--json', file)).out), { intact: true, unreadable: null });

  writeFileSync(file, readFileSync(file, 'utf8').replace('ip_not_allowed', 'accepted'));
  const packed = gzipSync(readFileSync(file));
  writeFileSync(`${file}.gz`, packed.subarray(0, -9));
  const cut = await verify(`${file}.gz`, gone);
  t.equal(cut.status, 1);
  t.match(cut.out, `${file}.gz:4: edited: line 4 of the chain was changed: its hash does not match\n`);
  t.match(
    cut.err,
    /cannot be read: its end is missing, because the file was truncated or is still being written\. Read before the failure: \d lines of \d requests, 1 /,
  );
  const damaged = await verify(file, `${file}.gz`);
  t.match(damaged.out, `${file}:4: edited`, 'findings in earlier files');
});

t.test('a chain that may continue in an unreadable file is reported neither as truncated nor as foreign', async (t) => {
  const { file, secretFile } = await logOf(t);
  const lines = readFileSync(file, 'utf8').split('\n');
  const verify = (...args: string[]): Promise<Outcome> => audit('verify', '--secret-file', secretFile, ...args);
  for (const [args, part] of [
    [[], lines.slice(0, 5)],
    [['--partial'], ['{}', ...lines.slice(1, 2)]],
  ] as const) {
    writeFileSync(file, `${part.join('\n')}\n`);
    t.match(
      await verify(...args, file),
      { status: 1, out: /:[25]: (?:truncated|foreign): / },
      'with every file readable, it is a finding',
    );
    const { out } = await verify(...args, file, `${file}.2`);
    t.match(out, /:[25]: the chain \w+ may continue in the part that was not read\n/);
    t.notMatch(out, /:[25]: (?:truncated|foreign): /);
  }
});

t.test('with --running, an incomplete last line that exceeds the maximum length is a finding', async (t) => {
  const { file, secretFile } = await logOf(t);
  const lines = readFileSync(file, 'utf8');
  const begin = lines.slice(0, '{"service":{"ephemeral_id":"'.length);
  const verify = async (last: string): Promise<Outcome> => {
    writeFileSync(file, `${lines}${last}`);
    return audit('verify', '--running', '--secret-file', secretFile, file);
  };
  t.match(await verify(begin), { status: 0, out: /access\.log:10: incomplete line: the gateway may/ });
  t.match(await verify(begin.padEnd(1024 * 1024, 'x')), { status: 0 });
  t.match(await verify(begin.padEnd(1024 * 1024 + 1, 'x')), { status: 1, out: /access\.log:10: foreign: / });
});

t.test('lines are split independently of chunks, and an endless line does not grow memory', async (t) => {
  const whole = Buffer.from('one\n\nthree\n');
  for (let at = 0; at <= whole.length; at += 1) {
    const lines: unknown[] = [];
    for await (const some of readLogLines(['-'], Readable.from([whole.subarray(0, at), whole.subarray(at)]))) {
      lines.push(...some.map(({ number, bytes, ended }) => [number, bytes?.toString(), ended]));
    }
    const expected = [
      [1, 'one', true],
      [2, '', true],
      [3, 'three', true],
    ];
    t.same(lines, expected);
  }
  const pieces = Array.from({ length: 40 }, () => Buffer.alloc(100_000, 'x'));
  const long: unknown[] = [];
  for await (const some of readLogLines(['-'], Readable.from([...pieces, Buffer.from('\nshort')]))) {
    long.push(...some.map(({ bytes, ended }) => [bytes?.toString() ?? null, ended]));
  }
  t.same(long, [
    [null, true],
    ['short', false],
  ]);
});

t.test('audit search combines all filters, and escapes control characters', async (t) => {
  const { file } = await logOf(t);
  const found = async (...options: string[]): Promise<string[]> => {
    const { status, out } = await audit('search', '--json', ...options, file);
    t.equal(status, 0);
    return [...out.matchAll(/"id":"(r\d)"/g)].map(([, id = '']) => id);
  };
  t.same(await found(), ['r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'r7']);
  t.same(await found('--merchant', 'm_a'), ['r1', 'r2', 'r3']);
  t.same(await found('--key-id', 'key_b'), ['r5']);
  t.same(await found('--key', 'key_b'), ['r5'], 'the former option name');
  t.same(await found('--fingerprint', 'ab'.repeat(16)), ['r4']);
  t.same(await found('--code', 'key_unknown'), ['r4', 'r7']);
  t.same(await found('--address', '192.0.2.0/24'), ['r1', 'r2', 'r5']);
  t.same(await found('--address', '10.0.0.1'), ['r5'], 'also by the address of a proxy');
  t.same(await found('--address', '2001:db8::/32'), ['r4']);
  t.same(await found('--path', '/v1/payouts'), ['r1', 'r3', 'r4', 'r5', 'r6']);
  t.same(await found('--since', '2024-11-20T10:03:00Z', '--until', '2024-11-20T11:30:00Z'), ['r4', 'r5']);
  t.same(await found('--request-id', 'r6'), ['r6']);
  t.same(await found('--merchant', 'm_a', '--code', 'accepted', '--path', '/v1/payoutsx'), ['r2']);
  t.same(await found('--since', '1d'), [], 'the lines are older than a day');
  const limited = await audit('search', '--limit', '2', file);
  t.equal(limited.out.split('\n').length, 3);
  t.match(limited.err, 'More than 2 lines match');
  const rows = await audit('search', '--merchant', hostile, file);
  t.notMatch(rows.out, /[\u202e\u009b]/);
  t.match(rows.out, '2024-11-20T12:00:00.000Z  401  key_unknown');
  t.match((await audit('search', '--request-id', 'r4', file)).out, /why key_unknown\n$/, 'the reason of the rejection');
  for (const wrong of [
    ['--address', 'nowhere'],
    ['--since', 'yesterday'],
    ['--since', '2024-02-30'],
    ['--until', '2023-02-29T10:00:00Z'],
    ['--limit', '0'],
    ['--limit', '100001'],
  ]) {
    t.equal((await audit('search', ...wrong, file)).status, 2, wrong.join(' '));
  }
});

t.test(
  'requests that share a line of an IPv6 /64 count for the /64, and each address in it finds the line',
  async (t) => {
    const file = `${t.testdir()}/access.log`;
    const log = openLog(file);
    const shared = (ip: string, aggregate: object): void => {
      const line = {
        '@timestamp': '2024-11-20T10:00:00.000Z',
        http: { request: {}, response: { status_code: 429 } },
        ...{ client: { ip }, source: { ip: '10.0.0.1' } },
        gateway: { environment: 'live', aggregate },
        event: { action: 'api-request', code: 'throttled', reason: 'shared' },
      };
      log.write(serialise(line));
    };
    shared('2001:db8:0:7::1', { count: 30, codes: { throttled: 30 }, source: '2001:db8:0:7::/64' });
    shared('2001:db8:0:8::1', { count: 5, codes: { throttled: 5 } });
    shared('192.0.2.1', { count: 4, codes: { throttled: 4 }, source: '192.0.2.1' });
    await log.close(30_000);

    const addresses = [
      { value: '2001:db8:0:7::/64', count: 30 },
      { value: '2001:db8:0:8::1', count: 5 },
      { value: '192.0.2.1', count: 4 },
    ];
    const summary = JSON.parse((await audit('summary', '--json', file)).out) as Record<string, unknown>;
    t.same([summary.addresses, summary.refusedAddresses], [addresses, addresses]);
    const found = async (address: string): Promise<string[]> => {
      const { out } = await audit('search', '--address', address, file);
      return [...out.matchAll(/(\d+) requests/g)].map(([, count = '']) => count);
    };
    t.same(await found('2001:db8:0:7::1'), ['30'], 'the address of the first request');
    t.same(await found('2001:db8:0:7::9'), ['30'], 'any other address in the /64');
    t.same(await found('2001:db8:0:7:8000::/65'), ['30']);
    t.same(await found('2001:db8::/32'), ['30', '5']);
    t.same(await found('2001:db8:0:6:ffff:ffff:ffff:ffff'), [], 'the last address before the /64');
    t.same(await found('2001:db8:0:8::'), [], 'the first address after it');
    t.same(await found('192.0.2.1'), ['4']);
    t.same(await found('192.0.2.2'), []);
    t.same(await found('10.0.0.0/8'), ['30', '5', '4'], 'the address of the proxy');
    t.match((await audit('search', '--address', '2001:db8:0:7::9', file)).out, '2001:db8:0:7::/64');
  },
);

t.test('without file arguments, search and summary read the log of the configuration', async (t) => {
  const { file } = await logOf(t);
  const config = (name: string): string[] => ['--config', `${file}.${name}.yaml`];
  writeFileSync(`${file}.gateway.yaml`, `accessLog: { destination: ${file} }\n`);
  writeFileSync(`${file}.stdout.yaml`, 'accessLog: { destination: stdout }\n');
  writeFileSync(`${file}.wrong.yaml`, 'nothing: known\n');
  for (const command of ['search', 'summary']) {
    const named = await audit(command, '--json', file);
    t.equal(named.status, 0);
    t.same(await audit(command, '--json', ...config('gateway')), named);
    t.same(await audit(command, '--json', ...config('gateway'), file), named);
    t.match(await audit(command), { status: 2, err: /give the log files as arguments/ });
    t.match(await audit(command, ...config('stdout')), {
      status: 2,
      err: /the configuration writes the access log to standard output/,
    });
    t.match(await audit(command, ...config('wrong'), file), { status: 2, err: /nothing/ });
  }
});

t.test('for a log written by workers, the file of each worker is read', async (t) => {
  const { file } = await logOf(t);
  const config = `${file}.yaml`;
  writeFileSync(config, `accessLog: { destination: ${file} }\n`);
  const beside = (name: string): string => path.join(path.dirname(file), name);
  renameSync(file, beside('access.10.log'));
  for (const name of ['access.2.log', 'access.2.log.1', 'access.x.log', 'access.log.1', 'other.1.log']) {
    writeFileSync(beside(name), '');
  }
  for (const command of ['search', 'summary']) {
    const { status, err } = await audit(command, '--config', config);
    t.equal(status, 2);
    t.match(
      err,
      `${file} does not exist, but worker processes have written log files. Give these files as arguments: `,
    );
    t.match(err, `Give these files as arguments: ${beside('access.2.log')} ${beside('access.10.log')}\n`);
  }
  for (const name of ['access.2.log', 'access.10.log']) renameSync(beside(name), beside(`${name}.1`));
  t.match(
    await audit('search', '--config', config),
    { status: 1, err: /cannot be read: there is no such file/ },
    'no file of a worker exists',
  );
});

t.test('audit summary lists the most frequent values, and the number of others', async (t) => {
  const directory = t.testdir();
  const file = `${directory}/access.log`;
  const log = openLog(file);
  for (let count = 0; count < 61; count += 1) {
    const request = { at: '10:00', code: 'https_required', address: `192.0.2.${count}`, key: `key_${count}` };
    log.write(serialise(lineOf(request)));
  }
  await log.close(30_000);
  const { out } = await audit('summary', '--html', `${directory}/page.html`, file);
  t.match(out, /KEY OVER PLAIN HTTP OR THROUGH TOR +REQUESTS\n(?:key_\d+ +1\n){10}and 51 more\n/);
  const json = JSON.parse((await audit('summary', '--json', file)).out) as object;
  t.match(json, { distinct: { exposedKeys: 61, addresses: 61, refusedAddresses: 61, codes: 1, merchants: 0 } });
  t.match(readFileSync(`${directory}/page.html`, 'utf8'), /<b class="bad">61<\/b>exposed keys/);
});

t.test('audit summary counts requests, and its HTML page escapes all values', async (t) => {
  const { file, secretFile } = await logOf(t);
  const page = `${file}.html`;
  const { status, out } = await audit('summary', '--json', '--html', page, file);
  t.equal(status, 0);
  t.match(JSON.parse(out), {
    ...{ requests: 7, accepted: 2, otherLines: 2, spanMinutes: 5 },
    ...{ from: '2024-11-20T10:00:00.000Z', to: '2024-11-20T12:00:00.000Z' },
    codes: [
      { value: 'key_unknown', count: 2 },
      { value: 'https_required', count: 1 },
    ],
    merchants: [{ value: 'm_a', count: 2 }],
    addresses: [{ value: '198.51.100.7', count: 3 }],
    refusedAddresses: [{ value: '198.51.100.7', count: 3 }],
    countries: [{ value: 'NL', count: 2 }],
    newAddresses: [{ key: 'key_a', address: '198.51.100.7', code: 'ip_not_allowed' }],
    newAddressCount: 1,
    exposedKeys: [{ value: 'cd'.repeat(16) }, { value: 'key_b' }],
  });
  const spans = (JSON.parse(out) as { spans: { accepted: number; refused: number }[] }).spans;
  t.equal(
    spans.reduce((sum, { accepted, refused }) => sum + accepted + refused, 0),
    7,
  );
  const html = readFileSync(page, 'utf8');
  t.notMatch(html, /<script|alert\(1\)<|[\u202e\u009b]|\bon\w+=|https?:(?!\/\/www\.w3\.org)/i);
  t.match(html, '&lt;/td&gt;&lt;script&gt;');
  t.match(html, /<svg [^]*<rect/);
  t.match(html, "default-src 'none'");
  const text = await audit('summary', file);
  t.match(
    text.out,
    '7 requests from 2024-11-20T10:00:00.000Z to 2024-11-20T12:00:00.000Z: 2 accepted, 5 not accepted.',
  );
  t.match(text.out, '\nThe lines were not verified: add --verify, or use "merchant-gateway audit verify".\n');
  const verified = await audit('summary', '--verify', '--secret-file', secretFile, file);
  t.match(verified.out, '\nIntact: 0 findings in 9 lines, no signed checkpoints were given.\n');
  t.match((await audit('summary', '--verify', file)).err, 'The log is hashed with a secret: name the secret file');
  t.match(text.out, /NOT ACCEPTED BECAUSE +REQUESTS\nkey_unknown +2\n/);
  t.notMatch(text.out, /[\u202e\u009b]/);
  t.match(JSON.parse((await audit('summary', '--json', '--merchant', 'm_a', file)).out), { requests: 3 });
  t.match(await audit('summary', '--html', '/nowhere/page', file), {
    status: 1,
    err: /cannot be written: the directory does not exist\./,
  });
});

t.test("keys fingerprint prints a key's fingerprint as in the log, and never the key", async (t) => {
  const secretFile = `${t.testdir({ secret: 'a secret of the tests alone\n' })}/secret`;
  const fingerprint = async (input: string, args: string[]): Promise<string> => {
    let out = '';
    const io = { out: (text: string) => (out += text), err: () => undefined };
    await fingerprintCommand(io, Readable.from([Buffer.from(input)])).parseAsync(args, { from: 'user' });
    return out;
  };
  const key = 'svc_live_4Vz1cQ8mXo2TestOnly';
  const expected = `${keyFingerprint(testSecret, key) ?? ''}\n`;
  t.equal(await fingerprint(`${key}\n`, ['--secret-file', secretFile]), expected);
  t.equal(await fingerprint(key, ['--secret-file', secretFile]), expected);
  t.match(expected, /^[0-9a-f]{32}\n$/);
  for (const wrong of ['', 'sk_live_secretpart', 'x'.repeat(5000), `${key}\n\n`, `${key} `, `${key}\n${key}\n`]) {
    const refused = fingerprint(wrong, ['--secret-file', secretFile]);
    await t.rejects(refused, /one key on standard input|more than 4096/);
    await refused.catch((error: unknown) => t.notMatch(String(error), 'secretpart'));
  }
  const renewed = `${secretFile}.renewed`;
  writeFileSync(renewed, 'the next secret of the tests');
  writeFileSync(`${secretFile}.yaml`, JSON.stringify({ accessLog: { secretFile: renewed } }));
  const ofRenewed = `${keyFingerprint(logSecretOf(Buffer.from('the next secret of the tests')), key) ?? ''}\n`;
  const configured = ['--config', `${secretFile}.yaml`, '--secret-file'];
  t.equal(
    await fingerprint(key, [...configured, secretFile]),
    `${ofRenewed}${expected}`,
    'also under the former secret',
  );
  t.equal(await fingerprint(key, [...configured, renewed]), ofRenewed, 'one line for a secret that is named twice');
  await t.rejects(fingerprint(key, []), /Fingerprints need the access log's secret/);
  const { status, err } = await ran('keys', 'fingerprint', key);
  t.equal(status, 2);
  t.notMatch(err, key, 'a key passed as an argument is not repeated');
});
