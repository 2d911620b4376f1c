import { existsSync, readFileSync, renameSync } from 'node:fs';
import t, { type Test } from 'tap';
import { findEntry } from '../../src/audit/access-entry.js';
import { readLogLines } from '../../src/audit/log-lines.js';
import { SummaryBuilder } from '../../src/audit/summary/summary.js';
import { Verifier } from '../../src/audit/verifier.js';
import type { LineSink } from '../../src/telemetry/line-sink.js';
import { FreeSpace } from '../../src/telemetry/log-file.js';
import {
  ask,
  connect,
  exchangeBytes,
  type GatewayUnderTest,
  liveKey,
  recordsOf,
  startTestGateway,
  startUpstream,
} from '../edge/harness.js';
import { openLog, testSecret, until } from '../telemetry/open-log.js';

/** The members of an access log line that these tests read. */
interface Line {
  readonly '@timestamp': string;
  readonly client?: { readonly ip?: string };
  readonly organization?: { readonly id: string };
  readonly gateway: {
    readonly aggregate?: {
      readonly count: number;
      readonly codes: Readonly<Record<string, number>>;
      readonly source?: string;
    };
  };
  readonly event: { readonly code: string; readonly action: string; readonly start?: string; readonly end?: string };
}

const badKeys = 10;
const wrongAddress = 'svc_live_ofAMerchantElsewhere';

async function start(t: Test, over: Record<string, unknown> = {}, log: Partial<Parameters<typeof openLog>[1]> = {}) {
  const file = `${t.testdir()}/access.log`;
  const accessLog = openLog(file, log);
  const gateway = await startTestGateway(t, {
    accessLog,
    upstreamUrl: (await startUpstream(t)).url,
    records: {
      ...recordsOf(liveKey),
      ...recordsOf(wrongAddress, {
        key: { keyId: 'key_2', merchantId: 'm_2' },
        merchant: { ipAllowlist: ['192.0.2.1'] },
      }),
    },
    config: { trustedProxies: ['127.0.0.1'], throttle: { badKeys, ...over } },
  });
  return { gateway, accessLog, file };
}

function linesIn(...files: string[]): Line[] {
  return files
    .flatMap((file) => readFileSync(file, 'utf8').trimEnd().split('\n'))
    .map((line) => JSON.parse(line) as Line)
    .filter(({ event }) => event.action === 'api-request');
}

const countIn = ({ gateway }: Line): number => gateway.aggregate?.count ?? 1;
const sumOf = (lines: readonly Line[]): number => lines.reduce((sum, line) => sum + countIn(line), 0);

/**
 * Collects the shared lines that are written from now on. A shared line counts several requests. The lines are grouped
 * by flush: a flush writes its lines in one go.
 */
function flushesOf(accessLog: LineSink): Line[][] {
  const flushes: Line[][] = [];
  const write = accessLog.write.bind(accessLog);
  let current: Line[] | null = null;
  accessLog.write = (text) => {
    write(text);
    const line = JSON.parse(text) as Line;
    if (line.gateway.aggregate === undefined) return;
    if (current === null) {
      flushes.push((current = []));
      queueMicrotask(() => (current = null));
    }
    current.push(line);
  };
  return flushes;
}

/** Sends requests with these heads one after the other on one connection. @returns the number of responses */
async function send({ https, ca }: GatewayUnderTest, heads: readonly string[]): Promise<number> {
  const socket = connect(https, ca).setEncoding('latin1');
  let [sent, responses] = [0, 0];
  const next = (): void => {
    socket.write(`GET /v1/transactions HTTP/1.1\r\nHost: localhost\r\n${heads[sent] ?? ''}\r\n`);
    sent += 1;
  };
  next();
  for await (const chunk of socket as AsyncIterable<string>) {
    if (!chunk.includes('"data":')) continue;
    responses += 1;
    if (responses === heads.length) break;
    next();
  }
  // After two turns of the event loop, the gateway in this process knows that its response was sent.
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  return responses;
}

const from = (client: string, key?: string): string =>
  `X-Forwarded-For: ${client}\r\n${key === undefined ? '' : `X-Api-Key: ${key}\r\n`}`;
const many = (count: number, head: string): string[] => Array.from({ length: count }, () => head);

async function verify(...files: string[]) {
  const verifier = new Verifier({ secrets: [testSecret], running: false, partial: false });
  for await (const lines of readLogLines(files)) for (const line of lines) verifier.take(line);
  return verifier.end();
}

t.test('a flood without a key gets a line per request at first, then one line a second with the count', async (t) => {
  const { gateway, file } = await start(t);
  const nat = '198.51.100.7';
  t.equal(await send(gateway, many(500, from(nat))), 500);
  t.equal(await send(gateway, [...many(20, from(nat, 'svc_live_guess')), ...many(5, from(nat, liveKey))]), 25);
  t.equal(await send(gateway, [from(nat, wrongAddress), from('203.0.113.9')]), 2);
  await gateway.drain();
  const lines = linesIn(file);
  t.equal(sumOf(lines), 527, 'each request is counted once');
  const shared = lines.filter((line) => line.gateway.aggregate !== undefined);
  const own = lines.filter((line) => line.gateway.aggregate === undefined);
  t.equal(
    own.filter(({ event }) => event.code === 'key_required').length,
    badKeys - 1 + 1,
    'and one request of the other source',
  );
  t.equal(own.filter(({ event }) => event.code === 'accepted').length, 5, 'an accepted request has its own line');
  t.match(
    own.filter(({ organization }) => organization?.id === 'm_2').map(({ event }) => event.code),
    ['throttled'],
    'so has a rejection of a known key',
  );
  const seconds = (Date.parse(shared.at(-1)?.event.end ?? '') - Date.parse(lines[0]?.['@timestamp'] ?? '')) / 1_000;
  t.ok(shared.length >= 1 && shared.length <= seconds + 1, `${shared.length} shared lines in ${seconds} s`);
  for (const { client, event, gateway: { aggregate } = {} } of shared) {
    t.equal(client?.ip, nat);
    t.equal(aggregate?.source, nat);
    t.equal(
      Object.values(aggregate?.codes ?? {}).reduce((sum, count) => sum + count, 0),
      aggregate?.count,
    );
    t.ok((event.start ?? '') <= (event.end ?? ''));
  }
  const codes = new Map<string, number>();
  for (const { gateway: fields } of shared)
    for (const [code, count] of Object.entries(fields.aggregate?.codes ?? {}))
      codes.set(code, (codes.get(code) ?? 0) + count);
  t.same(Object.fromEntries(codes), { key_required: 500 - (badKeys - 1), throttled: 20 });
  const verdict = await verify(file);
  t.ok(verdict.intact, 'the chain is intact');
  t.equal(verdict.requests, 527, 'audit verify adds up the counts');
  const summing = new SummaryBuilder();
  for await (const found of readLogLines([file]))
    for (const { bytes } of found) summing.add(findEntry(bytes)?.entry ?? null);
  const summary = summing.end();
  t.match(summary, { requests: 527, accepted: 5 });
  t.same(
    summary.codes.map(({ value, count }) => [value, count]),
    [
      ['key_required', 501],
      ['throttled', 21],
    ],
    'audit summary adds up the counts by code',
  );
  t.same(summary.refusedAddresses[0], { value: nat, count: 521 });
  t.equal(
    summary.spans.reduce((sum, { refused }) => sum + refused, 0),
    522,
  );
});

const ways: Readonly<Record<string, string | null>> = {
  'over plain HTTP': null,
  'with the host of an onion service': 'GET / HTTP/1.1\r\nHost: a.onion\r\n\r\n',
  'that are not HTTP': 'garbage\r\n\r\n',
  'without a Host': 'GET / HTTP/1.1\r\n\r\n',
  'with a head that is too large': `GET / HTTP/1.1\r\nHost: a\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`,
  'with two keys': 'GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: svc_live_1\r\nX-Api-Key: svc_live_2\r\n\r\n',
  'whose client disconnects': 'GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12',
};

t.test('rejected requests of every other kind share lines under a flood too', async (t) => {
  for (const [what, bytes] of Object.entries(ways)) {
    await t.test(`requests ${what}`, async (t) => {
      const file = `${t.testdir()}/access.log`;
      const gateway = await startTestGateway(t, { accessLog: openLog(file), config: { throttle: { badKeys } } });
      const wrong = bytes ?? 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';
      for (let count = 0; count < 30; count += 1) {
        const socket = bytes === null ? connect(gateway.http, null) : connect(gateway.https, gateway.ca);
        await exchangeBytes(socket, wrong, (received) => received.includes('\r\n\r\n'));
      }
      await gateway.drain();
      const lines = linesIn(file);
      t.equal(sumOf(lines), 30);
      t.equal(lines.filter((line) => line.gateway.aggregate === undefined).length, badKeys - 1);
    });
  }
});

t.test('a flood from ever-changing addresses shares lines, and the counts add up', async (t) => {
  const { gateway, file, accessLog } = await start(t, { totalBadKeys: 100 });
  const flushes = flushesOf(accessLog);
  const heads = Array.from({ length: 1_000 }, (_, count) => from(`2001:db8:0:${(count + 1).toString(16)}::1`));
  t.equal(await send(gateway, heads), 1_000);
  t.equal(await send(gateway, [from('203.0.113.9', liveKey)]), 1, 'a valid key passes');
  await gateway.drain();
  const lines = linesIn(file);
  t.equal(sumOf(lines), 1_001);
  t.equal(lines.filter(({ event }) => event.code === 'accepted').length, 1);
  const shared = lines.filter((line) => line.gateway.aggregate !== undefined);
  t.equal(lines.length - shared.length, 99 + 1, 'until the total is reached');
  const linesWithSource = shared.filter(({ gateway: fields }) => fields.aggregate?.source !== undefined);
  t.match(linesWithSource[0]?.gateway.aggregate?.source, /^2001:db8:0:[0-9a-f]+::\/64$/);
  const counts = flushes.map((lines) => {
    const sources = lines.filter((line) => line.gateway.aggregate?.source !== undefined).length;
    return { sources, others: lines.length - sources };
  });
  t.ok(
    counts.some(({ others }) => others === 1),
    'the flood is large enough for a line of the other sources',
  );
  // A second with few requests, for example the last one, has no other sources.
  t.same(
    counts.filter(({ sources, others }) => (others === 0 ? sources > 20 : sources !== 20 || others > 1)),
    [],
    'each second twenty sources have a line each, and all others share one',
  );
  t.equal(
    counts.reduce((sum, { sources, others }) => sum + sources + others, 0),
    shared.length,
  );
  t.ok((await verify(file)).intact);
});

t.test('requests of sources evicted from the throttle are still counted', async (t) => {
  const { gateway, file } = await start(t, { badKeys: 1, maxSources: 2 });
  const heads = Array.from({ length: 300 }, (_, count) => from(`198.51.100.${count % 10}`));
  await send(gateway, heads);
  await gateway.drain();
  t.equal(sumOf(linesIn(file)), 300);
});

t.test('a source that is no longer throttled gets its own lines again, and its shared line is written', async (t) => {
  const { gateway, file } = await start(t, { windowSeconds: 60, pauseSeconds: 3 });
  await send(gateway, many(15, from('198.51.100.7')));
  const metrics = async (): Promise<string> => (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  while (!(await metrics()).includes('\ngateway_throttled_sources 0\n'))
    await new Promise((resolve) => setTimeout(resolve, 50));
  await send(gateway, many(3, from('198.51.100.7')));
  await gateway.drain();
  const lines = linesIn(file);
  t.equal(sumOf(lines), 18);
  t.equal(lines.filter((line) => line.gateway.aggregate === undefined).length, badKeys - 1 + 3);
});

t.test('log rotation during a flood loses no request, and both files verify', async (t) => {
  const { gateway, file, accessLog } = await start(t);
  await send(gateway, many(100, from('198.51.100.7')));
  renameSync(file, `${file}.1`);
  accessLog.reopen();
  await until(() => existsSync(file) && readFileSync(file, 'utf8').includes('file-start'));
  await send(gateway, many(100, from('198.51.100.7')));
  await gateway.drain();
  t.equal(sumOf(linesIn(`${file}.1`, file)), 200);
  t.ok((await verify(`${file}.1`, file)).intact);
});

t.test('a forced shutdown still writes the counts of shared lines', async (t) => {
  const { gateway, file, accessLog } = await start(t);
  await send(gateway, many(100, from('198.51.100.7')));
  await accessLog.close(1_000);
  t.equal(sumOf(linesIn(file)), 100);
  t.ok((await verify(file)).intact);
});

t.test('while the log cannot be written, shared lines keep their counts', async (t) => {
  let trouble: string | null = null;
  const written: Line[] = [];
  const gateway = await startTestGateway(t, {
    accessLog: {
      write: (line) => written.push(JSON.parse(line) as Line),
      problem: () => trouble,
      ...{ lost: () => 0, foreignBytes: () => 0, heldBytes: () => 0, close: () => Promise.resolve() },
    },
    config: { throttle: { badKeys }, accessLog: { onFailure: 'continue' }, trustedProxies: ['127.0.0.1'] },
  });
  trouble = 'the disk is full';
  await send(gateway, many(50, from('198.51.100.7')));
  await new Promise((resolve) => setTimeout(resolve, 1_200)); // longer than the second after which a shared line would be written
  t.equal(written.length, badKeys - 1);
  trouble = null;
  await until(() => sumOf(written) === 50);
  t.equal(written.length, badKeys);
});

interface ReserveLine {
  readonly organization?: { readonly id: string };
  readonly client?: { readonly ip?: string };
  readonly gateway: { readonly aggregate?: { readonly count: number; readonly codes: Record<string, number> } };
  readonly event: { readonly code: string; readonly action: string };
}

const reserveBytes = 1_000;
const revoked = 'svc_live_ofAMerchantThatLeft';

async function startWithReserve(t: Test, free: { bytes: number | null }, throttle: object = {}) {
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
  const lines = (): ReserveLine[] =>
    readFileSync(file, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as ReserveLine)
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

t.test('on a nearly full disk only accepted requests and rejections of known keys get their own lines', async (t) => {
  for (const [what, throttle] of [
    ['with the throttle', {}],
    ['without the throttle', { enabled: false }],
  ] as const) {
    await t.test(what, async (t) => {
      const free = { bytes: 2_000 };
      const { gateway, accessLog, lines, metric, from } = await startWithReserve(t, free, throttle);
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
      const checked = new Promise((resolve) => setTimeout(resolve, 50)); // several checks of the disk
      await checked;
      t.ok(accessLog.hasOnlyReserve(), 'slightly more than the reserve is not enough');
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

t.test('unknown free disk space changes nothing, and without a reserve the disk is not checked', (t) => {
  let [checks, changes] = [0, 0];
  const free: { bytes: number | null } = { bytes: null };
  const open = (reserve: number): FreeSpace =>
    new FreeSpace(
      '/a/b.log',
      reserve,
      () => (changes += 1),
      (directory, callback) => {
        t.equal(directory, '/a');
        checks += 1;
        callback(free.bytes);
      },
    );
  const space = open(10);
  space.check();
  t.same([checks, changes, space.hasOnlyReserve], [2, 0, false]);
  free.bytes = 9;
  space.check();
  free.bytes = null;
  space.check();
  t.same([changes, space.hasOnlyReserve], [1, true]);
  open(0).check();
  t.equal(checks, 4);
  t.end();
});

t.test('the free space of a real file system is read', async (t) => {
  const reported: boolean[] = [];
  const log = openLog(`${t.testdir()}/access.log`, {
    reserveBytes: 2 ** 50,
    onReserve: (hasOnlyReserve) => reported.push(hasOnlyReserve),
  });
  await until(() => log.hasOnlyReserve());
  t.same(reported, [true]);
  await log.close(1_000);
});
