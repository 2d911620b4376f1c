import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import t from 'tap';
import { decodeTime } from 'ulid';
import { createLogger, RepeatLimiter } from '../../src/telemetry/logger.js';
import { containsKey, maskKeys } from '../../src/telemetry/mask-keys.js';
import { GatewayMetrics } from '../../src/telemetry/metrics.js';
import type { TorExitStats } from '../../src/telemetry/part-metrics.js';
import { cut, decimal, serialise } from '../../src/telemetry/serialise.js';
import { uniqueId } from '../../src/telemetry/unique-id.js';
import { until } from './open-log.js';

/** Characters that a terminal or log viewer interprets: controls, line separators, bidirectional overrides. */
const obeyed = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}\ufeff]/u;

t.test('no character of a value can end a line or control a terminal', (t) => {
  const codes = Array.from({ length: 0x10000 }, (_, code) => code).filter((code) =>
    obeyed.test(String.fromCharCode(code)),
  );
  t.ok(codes.length > 75, 'controls of both blocks, separators, bidirectional overrides');
  for (const code of codes) {
    const value = `a${String.fromCharCode(code)}b`;
    const line = serialise({ [value]: value });
    if (obeyed.test(line)) t.fail(`U+${code.toString(16)} is written unescaped`);
    if ((JSON.parse(line) as Record<string, unknown>)[value] !== value) t.fail(`U+${code.toString(16)} is lost`);
  }
  t.equal(serialise({ a: '\u009b\u2028\u202e\u007f\u061c' }), '{"a":"\\u009b\\u2028\\u202e\\u007f\\u061c"}');
  t.equal(serialise({ a: 'é本"\\\n' }), '{"a":"é本\\"\\\\\\n"}', 'everything else is plain JSON');
  t.end();
});

t.test('any value is serialised as one line that reads back as written', (t) => {
  const text = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.string({ unit: fc.constantFrom('\u202e', '\u2028', '\u0085', '\\', '"', '\n', 'u', '\ud83d', '{', '\ufeff') }),
  );
  fc.assert(
    fc.property(fc.dictionary(text, fc.oneof(text, fc.jsonValue())), (value) => {
      const line = serialise(value);
      return !obeyed.test(line) && isDeepStrictEqual(JSON.parse(line), JSON.parse(JSON.stringify(value)));
    }),
    { numRuns: 300 },
  );
  t.end();
});

t.test('any number is written as valid JSON', (t) => {
  const numbers: [number, number, string][] = [
    ...([
      [0, 0, '0'],
      [0, 3, '0.000'],
      [1.23456, 3, '1.235'],
      [1e9 + 0.4, 0, '1000000000'],
      [-0.0001, 3, '-0.000'],
    ] as const),
    ...([
      [Infinity, 3, 'null'],
      [-Infinity, 0, 'null'],
      [NaN, 3, 'null'],
    ] as const),
  ].map(([value, digits, text]) => [value, digits, text]);
  for (const [value, digits, text] of numbers) {
    t.equal(decimal(value, digits), text);
    t.doesNotThrow(() => void JSON.parse(text));
  }
  t.end();
});

t.test('a value is truncated at its limit, visibly', (t) => {
  t.equal(cut(''), '');
  t.equal(cut('x'.repeat(1024)), 'x'.repeat(1024));
  t.equal(cut('x'.repeat(1025)), `${'x'.repeat(1024)}…`);
  t.equal(cut(`${'x'.repeat(1024)}y`.repeat(100)), `${'x'.repeat(1024)}…`);
  t.end();
});

t.test('requests are counted by their outcome, and readiness is read at the time of the scrape', async (t) => {
  let ready = false;
  let problem: string | null = 'the disk is full';
  const accessLog = { problem: () => problem, lost: () => 3, foreignBytes: () => 5, heldBytes: () => 17 };
  const metrics = new GatewayMetrics('test', { isReady: () => ready, keyStoreProblem: () => problem, accessLog });
  metrics.requests.add({ code: 'accepted', status: 200, route: '/payouts' });
  metrics.requests.add({ code: 'accepted', status: 200, route: '/payouts' });
  metrics.requests.add({ code: 'key_unknown', status: 401, route: 'none' });
  const { contentType, text } = await metrics.render();
  t.match(contentType, /^text\/plain; version=0\.0\.4/);
  const counted = text.split('\n').filter((line) => line.startsWith('gateway_requests_total{'));
  t.strictSame(counted, [
    'gateway_requests_total{code="accepted",status="200",route="/payouts",environment="test"} 2',
    'gateway_requests_total{code="key_unknown",status="401",route="none",environment="test"} 1',
  ]);
  t.match(text, /^gateway_ready 0$/m);
  for (const name of [
    'process_cpu_seconds_total',
    'process_resident_memory_bytes',
    'nodejs_eventloop_lag_p99_seconds',
  ]) {
    t.match(text, new RegExp(`^${name} `, 'm'), `process metrics: ${name}`);
  }
  t.notMatch(text, 'nodejs_gc_', 'garbage collections are not observed: an observer fills the old generation');
  ready = true;
  problem = null;
  const later = (await metrics.render()).text;
  for (const [name, before, after] of [
    ['gateway_ready', 0, 1],
    ['gateway_key_store_available', 0, 1],
    ['gateway_access_log_failing', 1, 0],
    ['gateway_access_log_held_bytes', 17, 17],
    ['gateway_access_log_lines_lost_total', 3, 3],
    ['gateway_access_log_foreign_bytes_total', 5, 5],
  ] as const) {
    t.match(text, new RegExp(`^${name} ${before}$`, 'm'));
    t.match(later, new RegExp(`^${name} ${after}$`, 'm'));
  }
});

t.test('the parts of a request are timed, in seconds', async (t) => {
  const accessLog = { problem: () => null, lost: () => 0, foreignBytes: () => 0, heldBytes: () => 0 };
  const metrics = new GatewayMetrics('live', { isReady: () => true, keyStoreProblem: () => null, accessLog });
  const upstream = { name: 'payouts', duration: 20 };
  metrics.observeDurations('/payouts', { whole: 30, decision: 2, lookup: { source: 'stale', duration: 1 }, upstream });
  metrics.observeDurations('none', { whole: 30, decision: 2, lookup: null, upstream: null });
  const { text } = await metrics.render();
  for (const line of [
    'gateway_request_duration_seconds_sum{route="/payouts"} 0.03',
    'gateway_decision_duration_seconds_count 2',
    'gateway_key_lookup_duration_seconds_sum{source="stale"} 0.001',
    'gateway_key_lookup_duration_seconds_count{source="stale"} 1',
    'gateway_upstream_duration_seconds_sum{upstream="payouts"} 0.02',
    'gateway_upstream_duration_seconds_bucket{le="0.01",upstream="payouts"} 0',
  ]) {
    t.ok(text.split('\n').includes(line), line);
  }
});

t.test('the Tor exit list is read at the time of the scrape', async (t) => {
  const accessLog = { problem: () => null, lost: () => 0, foreignBytes: () => 0, heldBytes: () => 0 };
  const metrics = new GatewayMetrics('test', { isReady: () => true, keyStoreProblem: () => null, accessLog });
  const before = { source: 'a.txt', ageSeconds: null, size: 0, leftOut: 0, refusals: {} };
  let stats: TorExitStats = { available: false, digest: null, size: 0, ageSeconds: null, sources: [before] };
  metrics.watchTorExits(() => stats);
  const lines = async (): Promise<string[]> =>
    (await metrics.render()).text.split('\n').filter((line) => line.startsWith('gateway_tor_list'));
  t.strictSame(await lines(), [
    'gateway_tor_list_available 0',
    'gateway_tor_list_entries 0',
    'gateway_tor_list_source_entries{source="a.txt"} 0',
    'gateway_tor_list_left_out{source="a.txt"} 0',
  ]);
  const source = { source: 'a.txt', ageSeconds: 9, size: 5, leftOut: 2, refusals: { html: 3, empty: 1 } };
  stats = { available: true, digest: 'ab', size: 5, ageSeconds: 9, sources: [source] };
  const expected = [
    'gateway_tor_list_available 1',
    'gateway_tor_list_entries 5',
    'gateway_tor_list_info{digest="ab"} 1',
    'gateway_tor_list_age_seconds 9',
    'gateway_tor_list_source_age_seconds{source="a.txt"} 9',
    'gateway_tor_list_source_entries{source="a.txt"} 5',
    'gateway_tor_list_left_out{source="a.txt"} 2',
    'gateway_tor_list_refusals_total{source="a.txt",reason="html"} 3',
    'gateway_tor_list_refusals_total{source="a.txt",reason="empty"} 1',
  ];
  t.strictSame(await lines(), expected);
  t.strictSame(await lines(), expected, 'repeated scrapes do not add up');
  stats = { ...stats, digest: 'cd' };
  t.strictSame(
    (await lines()).filter((line) => line.includes('digest')),
    ['gateway_tor_list_info{digest="cd"} 1'],
    'only the newest digest is reported',
  );
});

t.test('two gateways in one process have separate counts', async (t) => {
  const accessLog = { problem: () => null, lost: () => 0, foreignBytes: () => 0, heldBytes: () => 0 };
  const state = { isReady: () => true, keyStoreProblem: () => null, accessLog };
  const one = new GatewayMetrics('live', state);
  const other = new GatewayMetrics('live', state);
  one.requests.add({ code: 'accepted', status: 200, route: '/payouts' });
  t.notMatch((await other.render()).text, /^gateway_requests_total\{/m);
});

t.test('a key is masked except for its prefix, in any place and encoding', (t) => {
  const secret = 'Nw5RigG5NVB9klCp';
  const key = `svc_live_${secret}`;
  const encoded = Buffer.from(key).toString('hex').replaceAll(/../g, '%$&');
  const texts = [
    key,
    key.toUpperCase(),
    `/v1/transactions/${key}`,
    `/v1/${key}/${key.replace('live', 'test')}`,
    `curl ${key} x`,
    `http://u:${key}@a/v1`,
    `/v1/%73vc_live_${secret}`,
    `/v1/svc%5Flive%5f${secret}`,
    `/v1/svc%255Flive%255F${secret}`,
    `/v1/${encoded}`,
    `/v1/x/svc_live_/svc%5Flive%5F${secret}`,
    `/v1/svc_live_Nw5Ri%67G5NVB9klCp`,
    `/v1/svc_live_%20${secret}`,
    `/v1/svc_live_.${secret}`,
    `curl ${key} ${key.replace('live', 'test')}`,
    `/v1/SVC%5FLIVE%5F${secret}`,
    `/v1/svc%252525255Flive%252525255F${secret}`,
    `/v1/svc%25252525255Flive_${secret}`,
    `/v1/svc%${'25'.repeat(200)}5Flive_${secret}`,
    `/v1/svc%%35%46live_${secret}`,
  ];
  for (const text of texts) {
    const masked = maskKeys(text);
    for (let at = 0; at + 6 <= secret.length; at += 1) {
      t.notOk(masked.toLowerCase().includes(secret.slice(at, at + 6).toLowerCase()), `${masked} of ${text}`);
    }
    t.match(masked, /svc_(?:live|test)_…/i);
  }
  t.equal(
    maskKeys('/v1/dev/customers/%C3%A9%2F..%2f'),
    '/v1/dev/customers/%C3%A9%2F..%2f',
    'everything else is unchanged',
  );
  t.equal(maskKeys('/v1/100%/%zz%'), '/v1/100%/%zz%', 'percent signs without an encoding do not slow it down');
  t.ok(containsKey('x svc_test_ y') && containsKey('SVC_LIVE_'));
  for (const rest of ['%', '%4', '%zz', '%%', '%2525%', '\u{d83d}%25']) {
    t.equal(maskKeys(rest), rest, 'an invalid percent-encoding stays');
    t.equal(maskKeys(`svc_live_%41 ${rest}`).slice(0, 11), 'svc_live_… ');
  }
  t.notOk(containsKey('svc_prod_abc'));
  t.end();
});

t.test('a repeated message is written a limited number of times, a fatal one always', async (t) => {
  const written: { level: string; msg: string; leftOut?: number; repeated?: string }[] = [];
  const destination = { write: (line: string) => written.push(JSON.parse(line) as never) };
  const logger = createLogger('info', destination, 3_600_000);
  for (let count = 0; count < 100; count += 1) logger.error({ count }, 'a request failed');
  logger.info('another');
  for (let count = 0; count < 25; count += 1) logger.fatal('ends');
  logger.debug('not wanted');
  const counted = (message: string): number => written.filter(({ msg }) => msg === message).length;
  t.same(['a request failed', 'another', 'ends', 'not wanted'].map(counted), [20, 1, 25, 0]);

  const hasty = createLogger('info', destination, 100);
  const leftOut = () => written.find(({ repeated }) => repeated === 'failed again');
  await until(() => {
    for (let count = 0; count < 50; count += 1) hasty.error('failed again');
    return leftOut() !== undefined;
  });
  t.match(leftOut(), { level: 'warn', msg: 'repeated message suppressed', leftOut: Number });
  const lines = new RepeatLimiter(1_000);
  const admitted = (now: number): number =>
    Array.from({ length: 30 }, () => lines.admit('x', now)).filter(Boolean).length;
  t.same([admitted(0), admitted(999), admitted(1_000)], [20, 0, 20], 'after the period it is written again');
  t.same(
    [lines.takeLeftOut(), lines.takeLeftOut()],
    [[['x', 50]], []],
    'each suppressed line is counted, also those of a period that has ended',
  );
  t.same([admitted(1_001), lines.takeLeftOut()], [0, [['x', 30]]], 'to take the counts begins no new period');
  const many = Array.from({ length: 1_010 }, (_, index) => lines.admit(`message ${index}`, 2_500)).filter(Boolean);
  t.same([many.length, lines.takeLeftOut()], [1_000, [['(other messages)', 10]]], 'its memory is limited');
});

t.test('an error is logged without its extra properties, and no key is logged', (t) => {
  const written: string[] = [];
  const logger = createLogger('trace', { write: (line) => written.push(line) });
  const cause = Object.assign(new Error('WRONGPASS "svc_live_inthecause"'), { command: { args: ['the password'] } });
  const error = Object.assign(new Error('said svc_live_inamessage\n"and" more', { cause }), {
    code: 'ECODE',
    password: 'the password',
  });
  logger.warn({ err: error, problem: 'svc_test_inafield"' }, 'in svc_live_inthemessage\\"');
  const [line = ''] = written;
  t.notMatch(line, /the password|inthecause|inamessage|inafield|inthemessage/);
  t.match(JSON.parse(line), { level: 'warn', err: { type: 'Error', code: 'ECODE', cause: { type: 'Error' } } });
  // The text after a key is dropped: it may be part of a split key.
  t.match(JSON.parse(line), { err: { message: /^said svc_live_…$/ }, problem: /^svc_test_…$/ });
  t.end();
});

t.test('an id is a ULID: it contains its time, sorts by it, and is unique', async (t) => {
  const before = Date.now();
  const ids = Array.from({ length: 10_000 }, uniqueId);
  t.ok(ids.every((id) => /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(id)));
  t.ok(ids.every((id) => decodeTime(id) >= before && decodeTime(id) <= Date.now()));
  t.equal(new Set(ids).size, ids.length);
  const characters = new Set(ids.map((id) => id.at(-1)));
  t.equal(characters.size, 32, 'each character occurs');
  while (Date.now() === decodeTime(ids.at(-1) ?? '')) await new Promise((resolve) => setImmediate(resolve));
  t.ok(uniqueId() > (ids.at(-1) ?? ''));
});
