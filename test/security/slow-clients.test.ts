import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { setTimeout as wait } from 'node:timers/promises';
import { TLSSocket } from 'node:tls';
import t from 'tap';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { BodyBuffers } from '../../src/edge/proxy/body-buffers.js';
import { bufferBody } from '../../src/edge/proxy/buffer-body.js';
import { BodyRate } from '../../src/edge/proxy/upload-meter.js';
import type { GatewayError } from '../../src/edge/request/errors.js';
import { Cancellation } from '../../src/edge/request/exchange.js';
import {
  ask,
  connect,
  exchangeBytes,
  type GatewayUnderTest,
  liveKey,
  parseResponse,
  recordsOf,
  requestBytes,
  startBareUpstream,
  startTestGateway,
  startUpstream,
  type Teardown,
} from '../edge/harness.js';
import { killAtEnd, productCommand } from '../product-command.js';

// Regression: a client that did not read a large response kept its upstream permit without limit. With maxInFlight 2,
// two such clients kept all others out.
t.test(
  'slow read: a client that does not read its response is disconnected and its upstream permit released',
  async (t) => {
    const stallSeconds = 5; // so long that both clients stall at the same time on a slow machine, too
    const upstream = await startUpstream(t);
    upstream.respond = (_request, response) => response.end(Buffer.alloc(30_000_000));
    const gateway = await startTestGateway(t, {
      config: {
        upstreams: { transactions: { url: upstream.url, maxInFlight: 2 } },
        limits: { requestTimeoutSeconds: stallSeconds, headersTimeoutSeconds: stallSeconds },
      },
    });
    const key = ['x-api-key', liveKey] as const;
    const stalled = [connect(gateway.https, gateway.ca), connect(gateway.https, gateway.ca)];
    for (const socket of stalled) {
      socket.on('error', () => undefined);
      socket.write(requestBytes({ headers: [key] }));
      await once(socket, 'readable');
    }
    t.equal((await ask(gateway, { headers: [key] })).status, 503, 'no upstream permit is free');
    while (gateway.lines.length < 3) await new Promise((resolve) => setTimeout(resolve, 10));
    const reason = `the client read nothing for ${stallSeconds} s (limits.requestTimeoutSeconds)`;
    t.match(gateway.lines[1], { event: { code: 'client_closed', reason } });
    upstream.respond = (_request, response) => response.end('{}');
    t.equal((await ask(gateway, { headers: [key] })).status, 200);
    for (const socket of stalled) socket.destroy();
  },
);

// A service can send its complete response and close its connection at once. Regression: a client that paused lost the
// part that it had not read yet.
t.test('a client that pauses gets the whole response, also after the upstream has closed its connection', async (t) => {
  const upstream = await startUpstream(t);
  const size = 300_000;
  upstream.respond = (_request, response) => {
    response.end(Buffer.alloc(size, 0x61), () => response.socket?.end());
  };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (let count = 0; count < 3; count += 1) {
    const socket = connect(gateway.https, gateway.ca);
    let bytes = 0;
    socket.write(requestBytes({ headers: [['x-api-key', liveKey]] }));
    await once(socket, 'readable');
    await new Promise((resolve) => setTimeout(resolve, 100));
    socket.on('data', (chunk: Buffer) => (bytes += chunk.length)).resume();
    await once(socket, 'close');
    t.ok(bytes > size, `${bytes} bytes`);
  }
  t.ok(gateway.lines.every((line) => (line.event as { code: string }).code === 'accepted'));
});

// Regression: on HTTP/1.1, no time limit applied to the gateway's own responses. A client without a key that did not
// read them kept its connection without limit.
t.test('slow read: a client that does not read its error responses is disconnected', (t) => {
  t.jobs = 2; // the time limit costs less if both protocols wait at once
  // Much longer than the 200 turns for which the test waits below. Otherwise the gateway would cut off the stalled
  // response while requests are sent.
  const limits = { requestTimeoutSeconds: 10, headersTimeoutSeconds: 10 };
  const get = 'GET /v1/transactions HTTP/1.1\r\nHost: localhost\r\nx-forwarded-proto: https\r\n';
  const open = {
    HTTP: ({ http: port }: GatewayUnderTest) => connect(port, null),
    TLS: ({ https: port, ca }: GatewayUnderTest) => connect(port, ca),
  };
  for (const [protocol, connected] of Object.entries(open)) {
    void t.test(`over ${protocol}`, { buffered: true }, async (t) => {
      const upstream = await startUpstream(t);
      const gateway = await startTestGateway(t, {
        upstreamUrl: upstream.url,
        config: { limits, trustedProxies: ['127.0.0.1'] },
      });
      upstream.respond = (_request, response) => response.end(Buffer.alloc(15_000, 0x61));
      /**
       * Waits for `count` log lines, for at most this many turns of at least a millisecond. A pause of the process is
       * one turn, however long it is. Returns whether the lines came.
       */
      const linesWithin = async (count: number, turns: number): Promise<boolean> => {
        for (let turn = 0; gateway.lines.length < count && turn < turns; turn += 1) await wait(1);
        return gateway.lines.length >= count;
      };
      /**
       * Sends one request after another and reads nothing, until a response cannot be sent. Returns the number of
       * requests.
       * @param largeResponses how many requests have a key; each later one gets a short error response
       */
      const askWithoutReading = async (socket: Socket, largeResponses: number): Promise<number> => {
        socket.on('error', () => undefined).pause();
        await once(socket, socket instanceof TLSSocket ? 'secureConnect' : 'connect');
        gateway.lines.length = 0;
        let sent = 0;
        do {
          socket.write(sent < largeResponses ? `${get}x-api-key: ${liveKey}\r\n\r\n` : `${get}\r\n`);
          sent += 1;
        } while (await linesWithin(sent, 200));
        return sent;
      };
      // Measures roughly how many large responses the kernel buffers. On the second connection, the rest of the
      // kernel's buffer is for error responses.
      const first = connected(gateway);
      const buffered = await askWithoutReading(first, Infinity);
      first.destroy();
      await linesWithin(buffered, 2_000);
      const socket = connected(gateway);
      const sent = await askWithoutReading(socket, Math.floor(buffered * 0.8));
      await until(() => gateway.lines.length >= sent); // the gateway has ended the last response, which was not read
      t.match(gateway.lines.at(-1), { event: { code: 'key_required' } });
      const connections = `gateway_connections{listener="${protocol === 'TLS' ? 'https' : 'http'}"}`;
      // Over TLS, the connection itself ends only with the client, or when its idle time is over.
      if (protocol === 'HTTP') await until(async () => (await metric(gateway, connections)) === 0);
      socket.destroy();
      await until(async () => (await metric(gateway, connections)) === 0);
    });
  }
  t.end();
});

t.test('the stall timeout of a response does not run on for the next request', async (t) => {
  const upstream = await startUpstream(t);
  const limits = { requestTimeoutSeconds: 3, headersTimeoutSeconds: 3 };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { limits } });
  upstream.respond = (_request, response) => {
    if (upstream.seen.length === 1) response.end(Buffer.alloc(10_000_000, 0x61));
    else setTimeout(() => response.end('{}'), 5_000);
  };
  const socket = connect(gateway.https, gateway.ca);
  let end = '';
  const headers = [['x-api-key', liveKey]] as const;
  socket.write(requestBytes({ headers }).replace('Connection: close\r\n', '') + requestBytes({ headers }));
  await once(socket, 'readable');
  await new Promise((resolve) => setTimeout(resolve, 300));
  socket.on('data', (chunk: Buffer) => (end = (end + chunk.toString('latin1')).slice(-1_000))).resume();
  await once(socket, 'close');
  t.match(end, /HTTP\/1\.1 200 OK\r\n[^]*\r\n\r\n\{\}$/);
});

const otherKey = 'svc_live_another_merchant';
const records = {
  ...recordsOf(liveKey),
  ...recordsOf(otherKey, { key: { keyId: 'key_2', merchantId: 'm_2' } }),
};
const head = (key: string, framing: string): string =>
  `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${key}\r\n${framing}\r\n\r\n`;
const post = { method: 'POST', path: '/v1/payouts', body: '{}' };

async function metric({ management }: GatewayUnderTest, series: string): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${management}/metrics`)).text();
  const line = text.split('\n').find((one) => one.startsWith(`${series} `));
  return Number(line?.slice(series.length + 1));
}

async function until(isSo: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await isSo())) await wait(5);
}

/** Opens a connection, sends these bytes, and then sends nothing. */
async function begin(t: Teardown, gateway: GatewayUnderTest, bytes: string): Promise<Socket> {
  const socket = connect(gateway.https, gateway.ca);
  t.teardown(() => socket.destroy());
  socket.on('error', () => undefined);
  await once(socket, 'secureConnect');
  socket.write(bytes);
  return socket;
}

// Regression: a request took its upstream permit before its body had arrived. 64 clients with a valid key sent a few
// bytes and stopped. They kept all other clients out of the service for half a minute.
t.test('slow upload: a body that does not arrive holds no permit and no upstream connection', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    records,
    config: { upstreams: { payouts: { url: upstream.url, maxInFlight: 64 } } },
  });
  const beginnings = [
    ['Content-Length: 1000', '{"amount":'],
    ['Content-Length: 65536', '{"amount":'],
    ['Transfer-Encoding: chunked', 'a\r\n{"amount":\r\n'],
    ['Content-Length: 1000000', '{"amount":'],
  ] as const;
  const slow = await Promise.all(
    Array.from({ length: 64 }, (_, index) => {
      const [framing, body] = beginnings[index % beginnings.length] ?? ['', ''];
      return begin(t, gateway, head(liveKey, framing) + body);
    }),
  );
  const buffered = 'gateway_buffered_body_bytes';
  await until(async () => (await metric(gateway, buffered)) >= 640 || gateway.lines.length > 0);
  t.equal(await metric(gateway, buffered), 640, 'the gateway has the beginning of each body');
  t.equal(await metric(gateway, 'gateway_upstream_requests_in_flight{upstream="payouts"}'), 0);
  t.equal(upstream.sockets.size, 0);
  for (const key of [otherKey, liveKey])
    t.equal((await ask(gateway, { ...post, headers: [['x-api-key', key]] })).status, 200);

  const [first] = slow;
  first?.write('x'.repeat(990));
  await until(() => upstream.seen.length === 3);
  t.equal(upstream.seen[2]?.body.length, 1000, 'a body that arrives late is forwarded complete');
  for (const socket of slow) socket.destroy();
  await until(async () => (await metric(gateway, buffered)) === 0);
  await until(() => gateway.lines.length === 66);
  t.equal(upstream.seen.length, 3, 'the service received none of the other requests');
});

t.test('a short chunked body is forwarded whole, and a body after 100-continue is awaited', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const chunked = await begin(t, gateway, head(liveKey, 'Transfer-Encoding: chunked'));
  for (const byte of 'abcdef') {
    chunked.write(`1\r\n${byte}\r\n`);
    await wait(2);
  }
  t.equal(upstream.sockets.size, 0);
  chunked.write('0\r\n\r\n');
  await once(chunked, 'data');
  t.match(upstream.seen[0], { headers: { 'content-length': '6' } });
  t.equal(upstream.seen[0]?.body.toString(), 'abcdef');

  const expecting = await begin(t, gateway, head(liveKey, 'Content-Length: 100000\r\nExpect: 100-continue'));
  const [interim] = (await once(expecting, 'data')) as [Buffer];
  t.match(interim.toString(), /^HTTP\/1\.1 100 Continue\r\n\r\n$/);
  t.equal(await metric(gateway, 'gateway_upstream_requests_in_flight{upstream="payouts"}'), 0);
  expecting.write('x'.repeat(100_000));
  const [response] = (await once(expecting, 'data')) as [Buffer];
  t.match(response.toString(), /^HTTP\/1\.1 200 /);
  t.equal(upstream.seen[1]?.body.length, 100_000);
});

t.test('slow upload: a long body gets its permit after 64 KiB and loses it when it trickles', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    records,
    config: { upstreams: { payouts: { url: upstream.url, maxInFlight: 1 } } },
  });
  const inFlight = 'gateway_upstream_requests_in_flight{upstream="payouts"}';
  const long = await begin(t, gateway, head(liveKey, 'Content-Length: 200000') + 'x'.repeat(65_536));
  await until(async () => (await metric(gateway, 'gateway_buffered_body_bytes')) >= 65_536);
  t.equal(await metric(gateway, inFlight), 0);
  long.write('x');
  await until(async () => (await metric(gateway, inFlight)) === 1);
  t.equal(await metric(gateway, 'gateway_buffered_body_bytes'), 0, 'from here on, the number of permits limits it');
  long.allowHalfOpen = true; // it continues to send after the response
  const trickle = setInterval(() => long.writable && long.write('x'), 100);
  const closed = new Promise((resolve) => long.once('close', resolve)); // 'close' comes even if a write fails
  const [response] = (await once(long, 'data')) as [Buffer];
  const rejection = parseResponse(response.toString());
  t.match(
    { status: rejection.status, body: rejection.body, connection: rejection.header('connection') },
    { status: 408, body: '{"success":false,"message":"Request timeout","data":null}', connection: 'close' },
  );
  t.equal(await metric(gateway, inFlight), 0);
  t.equal((await ask(gateway, { ...post, headers: [['x-api-key', otherKey]] })).status, 200);
  const respondedAt = performance.now();
  await closed;
  clearInterval(trickle);
  t.ok(performance.now() - respondedAt < 15_000, 'the connection closes before requestTimeoutSeconds');
  t.match(gateway.lines[0], {
    event: { code: 'request_timeout', reason: /^the body arrived more slowly than 4096 bytes/ },
  });
  t.equal(await metric(gateway, 'gateway_bodies_refused_total{reason="slow"}'), 1);
  t.equal(upstream.seen.length, 1, 'an incomplete payout is not forwarded');
});

t.test('a client is not disconnected for an upstream that does not read', async (t) => {
  const url = await startBareUpstream(t, (socket) => {
    socket.on('error', () => undefined);
    let received = 0;
    socket.once('data', () => {
      socket.pause();
      setTimeout(() => socket.resume(), 7_000);
    });
    socket.on('data', (chunk: Buffer) => {
      received += chunk.length;
      if (received > 16_000_000) socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok');
    });
  });
  const gateway = await startTestGateway(t, {
    upstreamUrl: url,
    config: { limits: { bodyBytes: 64_000_000, minBodyBytesPerSecond: 1_000_000_000 } },
  });
  const bytes = head(liveKey, 'Content-Length: 16000000') + 'x'.repeat(16_000_000);
  const received = await exchangeBytes(connect(gateway.https, gateway.ca), bytes, (text) => text.endsWith('ok'));
  t.equal(parseResponse(received).status, 200);
});

t.test('the minimum upload rate counts only the time spent waiting for the client', (t) => {
  const rate = new BodyRate(10, 1_000);
  const tooLow = (...seconds: (readonly [bytes: number, waits: boolean])[]): boolean[] =>
    seconds.map(([bytes, waits]) => rate.isTooLow(bytes, waits));
  const no = [false, false, false, false];
  t.same(
    tooLow([1000, true], [1000, true], [1000, true], [1000, true], [1050, true]),
    [...no, false],
    'exactly the minimum rate',
  );
  t.same(tooLow([1050, true], [1050, false], [1050, false], [1050, false], [1050, false]), [...no, false]);
  t.same(tooLow([1099, true], [1099, true], [1099, true]), [false, false, false]);
  t.same(tooLow([1099, true]), [true], 'one byte too few in five seconds of waiting for the client');
  t.end();
});

/** Buffers the body of a merchant's request, without a gateway. Returns the body, and what became of the request. */
function buffering(buffers: BodyBuffers, merchantId: string) {
  const body = new PassThrough();
  const state = { body, failed: null as string | null, forwardedBytes: null as number | null };
  const request = {
    ...{
      merchantId,
      method: 'POST',
      target: '/',
      headers: [],
      body,
      bodyBytes: null,
      cancellation: new Cancellation(),
    },
    ...{ onBody: () => undefined, bodyAtHand: () => null, bodyIsWhole: () => true, onStart: () => undefined },
    ...{ onUploadEnd: () => body.resume(), onHeaders: () => undefined, onResponse: () => undefined },
    failed: (error: GatewayError) => (state.failed = error.code),
  };
  bufferBody(request, body, { buffers, maxBodyBytes: 1_000_000 }, ({ length }) => (state.forwardedBytes = length));
  return state;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

t.test('when the body memory is used up, the merchant with the most of it loses its oldest body', async (t) => {
  const buffers = new BodyBuffers(100_000);
  const greedy = Array.from({ length: 5 }, () => buffering(buffers, 'm_1'));
  for (const { body } of greedy) body.write(Buffer.alloc(20_000));
  await turn();
  t.equal(buffers.bytes, 100_000, 'a single merchant may use all the memory');
  const modest = buffering(buffers, 'm_2');
  modest.body.write(Buffer.alloc(30_000));
  await turn();
  t.same(
    greedy.map(({ failed }) => failed),
    ['overloaded', 'overloaded', null, null, null],
  );
  t.same({ bytes: buffers.bytes, refused: buffers.refused }, { bytes: 90_000, refused: 2 });
  const [, , third, fourth, fifth] = greedy;
  third?.body.end();
  await turn();
  t.equal(third?.forwardedBytes, 20_000);
  t.equal(buffers.bytes, 70_000, 'a complete body no longer counts');
  const newcomer = buffering(buffers, 'm_1');
  newcomer.body.write(Buffer.alloc(40_000));
  await turn();
  t.same(
    [fourth?.failed, fifth?.failed, newcomer.failed],
    ['overloaded', null, null],
    'the merchant’s new body replaces its oldest one',
  );
  t.equal(third?.failed, null, 'a complete body is not lost');
  t.equal(modest.failed, null);
  const huge = buffering(new BodyBuffers(10), 'm_1');
  huge.body.write(Buffer.alloc(11));
  await turn();
  t.equal(huge.failed, 'overloaded', 'a body larger than all the memory');
});

t.test('bodies that end, are truncated or are dropped release their memory', async (t) => {
  const buffers = new BodyBuffers(100_000);
  const bodies = Array.from({ length: 4 }, () => buffering(buffers, 'm_1'));
  for (const { body } of bodies) body.write('0123456789');
  await turn();
  t.equal(buffers.bytes, 40);
  const [ended, truncated, long, early] = bodies;
  ended?.body.end();
  truncated?.body.destroy();
  long?.body.write(Buffer.alloc(65_536));
  await turn();
  t.same([ended?.forwardedBytes, truncated?.failed, long?.forwardedBytes], [10, 'client_closed', 65_546]);
  t.equal(buffers.bytes, 10);
  early?.body.destroy();
  await turn();
  t.equal(buffers.bytes, 0);
  const gone = new PassThrough();
  gone.destroy();
  await turn();
  t.equal(buffers.refused, 0);
});

t.test('a body in one-byte chunks takes at most twice its length of memory', async (t) => {
  const buffers = new BodyBuffers(100_000);
  const { body, forwardedBytes, failed } = buffering(buffers, 'm_1');
  for (let count = 0; count < 10_000; count += 1) body.write('x');
  await turn();
  t.ok(buffers.bytes >= 10_000 && buffers.bytes <= 20_000, `${buffers.bytes} bytes`);
  t.same([forwardedBytes, failed], [null, null]);
});

// Regression: destroying the TCP socket below a TLS socket with pending writes crashed the process. So a slow client
// could crash a gateway during a rollout, and the last log lines were lost.
t.test('slow read: a drain that has to cut off slow readers still ends as a drain', async (t) => {
  const upstream = http.createServer((_request, response) => response.end(Buffer.alloc(30_000_000))).listen(0);
  await once(upstream, 'listening');
  t.teardown(() => {
    upstream.closeAllConnections();
    upstream.close();
  });
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-drain-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const file = (name: string) => path.join(directory, name);
  const { cert, key } = await createSelfSigned(new Date());
  await writeFile(file('cert.txt'), cert);
  await writeFile(file('key.txt'), key);
  await writeFile(file('records.json'), JSON.stringify(recordsOf(liveKey)));
  await writeFile(
    file('config.yaml'),
    `listen:
  https: { host: 127.0.0.1, port: 0, certFile: ${file('cert.txt')}, keyFile: ${file('key.txt')} }
  http: null
  management: null
torExits: { enabled: false }
keyStore: { kind: memory, memory: { recordsFile: ${file('records.json')} } }
accessLog: { destination: ${file('access.log')} }
upstreams: { transactions: { url: "http://127.0.0.1:${(upstream.address() as AddressInfo).port}" } }
routes: [{ path: /transactions, upstream: transactions, resource: transactions }]
limits: { drainTimeoutSeconds: 1 }
`,
  );
  const child = spawn(...productCommand(['gateway', '--config', file('config.yaml')]));
  killAtEnd(t, child);
  let log = '';
  const port = await new Promise<number>((resolve) => {
    child.stderr.on('data', (chunk: Buffer) => {
      log += chunk.toString();
      const found = /"port":(\d+)/.exec(log);
      if (found !== null) resolve(Number(found[1]));
    });
  });
  const slow = Array.from({ length: 4 }, () => connect(port, cert));
  for (const socket of slow) {
    socket.on('error', () => undefined);
    socket.write(requestBytes({ headers: [['x-api-key', liveKey]] }).replace('Connection: close\r\n', ''));
    await once(socket, 'data');
    socket.pause();
  }
  // A connection that sends nothing, and one that stops within its handshake.
  const silent = [net.connect(port, '127.0.0.1'), net.connect(port, '127.0.0.1')];
  for (const socket of silent) {
    socket.on('error', () => undefined);
    await once(socket, 'connect');
  }
  silent[1]?.write(Buffer.from([0x16, 0x03, 0x01, 0x02]));
  child.kill('SIGTERM');
  const [status, signal] = (await once(child, 'close')) as [number | null, string | null];
  t.same({ status, signal }, { status: 0, signal: null });
  t.match(log, '"msg":"drained"');
  for (const socket of [...slow, ...silent]) socket.destroy();
});
