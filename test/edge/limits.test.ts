import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import t from 'tap';
import { GatewayError } from '../../src/edge/request/errors.js';
import { FairShare } from '../../src/edge/proxy/fair-share.js';
import { LoopWatch } from '../../src/edge/auth/loop-watch.js';
import { createManagement } from '../../src/edge/observe/management.js';
import { GatewayMetrics } from '../../src/telemetry/metrics.js';
import { ask, connect, exchangeBytes, liveKey, parseResponse, recordsOf, requestBytes } from './harness.js';
import { startTestGateway, startUpstream } from './harness.js';
import { reasons } from './reasons.js';

const key = ['x-api-key', liveKey] as const;
const tooLongTarget = '{"success":false,"message":"Request target too long","data":null}';
const tooLargeHead = '{"success":false,"message":"Request header fields too large","data":null}';

t.test(
  'a target over the limit is 414 and a header section over the limit is 431, with one response and one line',
  async (t) => {
    const upstream = await startUpstream(t);
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
    const long = (bytes: number): string =>
      requestBytes({ path: `/v1/transactions?${'x'.repeat(bytes)}`, headers: [key] });
    const headers = (count: number, value: string): string =>
      requestBytes({ headers: [key, ...Array.from({ length: count }, (): [string, string] => ['a', value])] });
    const cases: readonly (readonly [string, string, number, string])[] = [
      ['a target just above its limit', long(8192 - 16), 414, tooLongTarget],
      ['a target as large as the head limit', long(16_384), 414, tooLongTarget],
      ['a target beyond the parser limit', long(50_000), 414, tooLongTarget],
      ['a target in many packets', long(1_000_000), 414, tooLongTarget],
      ['one large header', headers(1, 'y'.repeat(17_000)), 431, tooLargeHead],
      ['one header beyond the parser limit', headers(1, 'y'.repeat(50_000)), 431, tooLargeHead],
      ['one header in many packets', headers(1, 'y'.repeat(1_000_000)), 431, tooLargeHead],
      ['headers in many packets', headers(20_000, 'a longer value'), 431, tooLargeHead],
      ['many small headers, which Node counts as a third', headers(3000, 'b'), 431, tooLargeHead],
    ];
    for (const [name, bytes, status, body] of cases) {
      gateway.lines.length = 0;
      const response = parseResponse(await exchangeBytes(connect(gateway.http, null), bytes));
      t.match({ status: response.status, body: response.body }, { status, body }, name);
      t.equal(response.header('connection'), 'close', name);
      const code = status === 414 ? 'target_too_long' : 'headers_too_large';
      t.match(gateway.lines, [{ event: { code }, http: { response: { status_code: status } } }], name);
      t.equal(gateway.lines.length, 1, name);
      // Over TLS the bytes arrive in other parts, because a TLS record has at most 16 KiB.
      const overTls = parseResponse(await exchangeBytes(connect(gateway.https, gateway.ca), bytes));
      t.match({ status: overTls.status, body: overTls.body }, { status, body }, `${name}, over TLS`);
    }
    t.equal((await ask(gateway, { path: `/v1/transactions?${'x'.repeat(8000)}`, headers: [key] })).status, 200);
    t.equal((await ask(gateway, { headers: [key, ['a', 'y'.repeat(16_000)]] })).status, 200);
  },
);

t.test('a client that disconnects within an overlong header line leaves one log line', async (t) => {
  const gateway = await startTestGateway(t);
  const reason = 'the connection closed before the end of an overlong line';
  const parts = ['GET /v1/transactions HTTP/1.1\r\nHost: localhost\r\na: ', 'y'.repeat(60_000)];
  for (const [port, ca] of [
    [gateway.https, gateway.ca],
    [gateway.http, null],
  ] as const) {
    for (const leave of ['end', 'destroy'] as const) {
      gateway.lines.length = 0;
      const name = `${ca === null ? 'HTTP' : 'HTTPS'}, ${leave}`;
      const socket = connect(port, ca).on('error', () => undefined);
      socket.resume();
      // The line begins in one packet and exceeds the limit in a later one. With TLS, it takes several records, because
      // a record has at most 16 KiB.
      for (const bytes of parts) {
        await new Promise((resolve) => socket.write(bytes, resolve));
        for (let turn = 0; turn < 10; turn += 1) await delay(10); // a pause of the whole process is only one turn
      }
      t.equal(gateway.lines.length, 0, `${name}: the line may still end`);
      if (leave === 'end') socket.end();
      else socket.destroy();
      for (let turn = 0; gateway.lines.length === 0 && turn < 500; turn += 1) await delay(5);
      t.match(
        gateway.lines,
        [{ http: { response: { status_code: 431 } }, event: { code: 'headers_too_large', reason } }],
        name,
      );
      t.equal(gateway.lines.length, 1, name);
      socket.destroy();
    }
  }
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(metrics, /^gateway_requests_total\{[^}]*code="headers_too_large"[^}]*\} 4$/m);
});

t.test('connections are limited per address, and unlimited for a trusted proxy', async (t) => {
  const config = { limits: { connectionsPerAddress: 2 } };
  const gateway = await startTestGateway(t, { config });
  const open = async (): Promise<Socket> => {
    const socket = connect(gateway.http, null);
    socket.on('error', () => undefined);
    const response = exchangeBytes(socket, requestBytes({}).replace('Connection: close\r\n', ''), () => false);
    response.catch(() => undefined);
    await once(socket, 'data');
    return socket;
  };
  const first = await open();
  const second = await open();
  const third = await exchangeBytes(connect(gateway.http, null), requestBytes({})).catch(() => '');
  t.equal(third, '', 'the third is closed without a response');
  t.equal((await ask(gateway, {})).status, 401, 'each listener has its own limit');
  first.destroy();
  // Repeats a request until the gateway has noticed the close.
  for (;;) {
    const received = await exchangeBytes(connect(gateway.http, null), requestBytes({})).catch(() => '');
    if (received !== '') break;
  }
  second.destroy();
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(metrics, /^gateway_connections_refused_total\{reason="address_limit"\} [1-9]/m);

  const behind = await startTestGateway(t, { config: { ...config, trustedProxies: ['127.0.0.1'] } });
  const responses = await Promise.all(Array.from({ length: 5 }, () => ask(behind, {})));
  t.ok(responses.every(({ status }) => status === 401));
});

t.test('a response that only trickles is cut off, and its upstream permit is released', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    config: {
      upstreams: { transactions: { url: upstream.url, maxInFlight: 1 } },
      limits: { answerTimeoutSeconds: 1 },
    },
  });
  upstream.respond = (_request, response) => {
    const drip = setInterval(() => response.write('x'), 50);
    response.once('close', () => {
      clearInterval(drip);
    });
  };
  const received = await exchangeBytes(connect(gateway.https, gateway.ca), requestBytes({ headers: [key] }));
  t.match(received, /^HTTP\/1\.1 200 /);
  t.notMatch(received, /\r\n0\r\n\r\n$/, 'it is cut off, not completed');
  while (gateway.lines.length === 0) await delay(5);
  t.match(gateway.lines, [{ event: { code: 'upstream_timeout' } }]);
  upstream.respond = (_request, response) => response.end('{}');
  while ((await ask(gateway, { headers: [key] })).status !== 200) await delay(5);
  t.equal(upstream.seen.length, 2);
});

t.test('an upload is read only as fast as its service takes it: the rest waits at the client', async (t) => {
  // A service that reads the head of a request and then nothing.
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.pause());
    t.teardown(() => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const gateway = await startTestGateway(t, {
    upstreamUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    config: { trustedProxies: ['127.0.0.1'], limits: { bodyBytes: 64_000_000 } },
  });
  const socket = connect(gateway.http, null);
  socket.on('error', () => undefined);
  t.teardown(() => socket.destroy());
  const body = Buffer.alloc(48_000_000);
  const forwarded = `x-api-key: ${liveKey}\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n`;
  socket.write(`POST /v1/payouts HTTP/1.1\r\nHost: a\r\n${forwarded}Content-Length: ${body.length}\r\n\r\n`);
  const chunk = body.subarray(0, 1_000_000);
  for (let count = 0; count < 48; count += 1) socket.write(chunk);
  await new Promise<void>((resolve) => {
    server.once('connection', () => {
      resolve();
    });
  });
  let still = 0;
  for (let before = -1; still < 30; before = socket.writableLength) {
    await delay(10);
    still = socket.writableLength === before ? still + 1 : 0;
  }
  t.ok(
    socket.writableLength > 24_000_000,
    `${socket.writableLength} of ${body.length} bytes are still unsent at the client`,
  );
});

t.test('an overload begins after two slow seconds and ends at half of its limit', (t) => {
  const watch = new LoopWatch(100);
  const overloaded = (delayMilliseconds: number): boolean => {
    watch.note(delayMilliseconds);
    return watch.problem() !== null;
  };
  t.same(
    [10, 5000, 10, 101, 100, 101].map(overloaded),
    [false, false, false, false, false, false],
    'a single pause is not an overload',
  );
  t.same([150, 99, 51, 50, 101, 99].map(overloaded), [true, true, true, false, false, false]);
  t.match(new LoopWatch(0).problem(), null);
  const never = new LoopWatch(0);
  for (let count = 0; count < 5; count += 1) never.note(10_000);
  t.equal(never.problem(), null);
  watch.note(500);
  watch.note(500);
  t.equal(watch.problem(), 'the event loop is delayed by 500 ms');
  t.end();
});

t.test('an overloaded gateway refuses at once with 503, and accepts requests again after the overload', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits: { eventLoopDelayMilliseconds: 100 } },
  });
  let busy = true;
  const block = (): void => {
    const until = performance.now() + 250;
    while (performance.now() < until);
    if (busy) setTimeout(block, 1);
  };
  block();
  let response = await ask(gateway, { headers: [key] });
  while (response.status === 200) response = await ask(gateway, { headers: [key] });
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  busy = false;
  t.match(
    { status: response.status, body: response.body, retry: response.header('retry-after') },
    { status: 503, body: '{"success":false,"message":"Service temporarily unavailable","data":null}', retry: '1' },
  );
  t.match(gateway.lines.at(-1), { event: { code: 'overloaded', reason: reasons.overloaded } });
  t.match(metrics, 'gateway_overloaded 1', 'the management listener responds throughout');
  while ((await ask(gateway, { headers: [key] })).status !== 200) await delay(50);
});

t.test('a single active merchant may take every upstream permit; with others active, some are reserved', (t) => {
  let now = 0;
  const places = new FairShare(8, () => now);
  const most = (merchantId: string): (() => void)[] => {
    const held: (() => void)[] = [];
    for (;;) {
      try {
        held.push(places.take(merchantId));
      } catch (error) {
        if (!(error instanceof GatewayError) || error.code !== 'upstream_busy') throw error;
        return held;
      }
    }
  };
  const giveBack = (held: (() => void)[]): void => {
    for (const one of held) one();
  };
  const alone = most('m_1');
  t.equal(alone.length, 8);
  giveBack(alone);
  giveBack([places.take('m_2')]);
  const greedy = most('m_1');
  t.equal(greedy.length, 6, 'three quarters');
  const modest = most('m_2');
  t.equal(modest.length, 2, 'the other merchant gets the rest');
  giveBack([...greedy, ...modest]);
  now += 60_000;
  const aloneAgain = most('m_1');
  t.equal(aloneAgain.length, 8, 'after a minute without requests the others count as inactive');
  giveBack(aloneAgain);
  const one = new FairShare(1, () => now);
  const [only] = [one.take('m_1')];
  only();
  t.doesNotThrow(() => one.take('m_2'), 'a single permit can go to any merchant');
  t.end();
});

t.test('one key cannot starve another merchant of a service', async (t) => {
  const upstream = await startUpstream(t);
  const greedyKey = 'svc_live_greedy';
  const gateway = await startTestGateway(t, {
    records: { ...recordsOf(greedyKey, { key: { keyId: 'key_2', merchantId: 'm_2' } }), ...recordsOf(liveKey) },
    config: { upstreams: { transactions: { url: upstream.url, maxInFlight: 4 } } },
  });
  t.equal((await ask(gateway, { headers: [key] })).status, 200, 'another merchant was active recently');
  upstream.respond = () => undefined;
  const sockets: Socket[] = [];
  for (let count = 0; count < 8; count += 1) {
    const socket = connect(gateway.https, gateway.ca);
    socket.on('error', () => undefined);
    sockets.push(socket);
    socket.write(requestBytes({ headers: [['x-api-key', greedyKey]] }));
  }
  while (upstream.seen.length + gateway.lines.length < 1 + 1 + 8) await delay(5);
  t.equal(upstream.seen.length, 1 + 3, 'three of the four permits');
  t.match(gateway.lines.at(-1), {
    event: { code: 'upstream_busy', reason: /fair share of maxInFlight: it has 3 requests in flight/ },
  });
  upstream.respond = (_request, response) => response.end('{}');
  t.equal((await ask(gateway, { headers: [key] })).status, 200);
  for (const socket of sockets) socket.destroy();
});

t.test('the management listener limits its connections', async (t) => {
  const accessLog = { problem: () => null, lost: () => 0, foreignBytes: () => 0, heldBytes: () => 0 };
  const metrics = new GatewayMetrics('live', { isReady: () => true, keyStoreProblem: () => null, accessLog });
  const management = createManagement({
    health: () => ({ problems: [], warnings: [], details: {} }),
    metrics,
    keys: null,
  });
  t.ok(management.server.maxConnections > 0 && management.server.maxConnections <= 1000);
  await management.close();
});
