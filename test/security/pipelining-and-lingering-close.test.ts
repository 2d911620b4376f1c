import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { setImmediate as nextTurn, setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import {
  ask,
  connect,
  exchangeBytes,
  liveKey,
  requestBytes,
  startTestGateway,
  startUpstream,
} from '../edge/harness.js';
import { leftOpen } from '../edge/left-open.js';

// Node starts a pipelined request at once, and tells it nothing when its connection breaks while it waits: it was
// carried out without a line in the log, and its place upstream was never free again.
const key = ['x-api-key', liveKey] as const;
const get = requestBytes({ headers: [key] }).replace('Connection: close\r\n', '');
const post = requestBytes({ method: 'POST', path: '/v1/payouts', body: '{}', headers: [key] }).replace(
  'Connection: close\r\n',
  '',
);

t.test('a pipelined request is not executed when its connection breaks while it waits', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    config: { upstreams: { transactions: { url: upstream.url, maxInFlight: 3 }, payouts: { url: upstream.url } } },
  });
  for (let count = 0; count < 5; count += 1) {
    const arrived = new Promise<ServerResponse>((resolve) => {
      upstream.respond = (_request, response) => {
        resolve(response);
      };
    });
    const socket = connect(gateway.https, gateway.ca);
    socket.write(get + post + get);
    await arrived;
    socket.destroy();
    while (gateway.lines.length < (count + 1) * 3) await new Promise((resolve) => setImmediate(resolve));
  }
  t.same(
    upstream.seen.filter(({ method }) => method === 'POST'),
    [],
    'no payout was made that nobody could be told of',
  );
  t.equal(gateway.lines.length, 15, 'each request has its line');
  t.ok(gateway.lines.every((line) => (line.event as { code: string }).code === 'client_closed'));
  upstream.respond = (_request, response) => response.end('{}');
  for (let count = 0; count < 5; count += 1) {
    t.equal((await ask(gateway, { headers: [key] })).status, 200, 'and every place upstream is free again');
  }
});

t.test('pipelined requests are executed one after the other, in order', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  let running = 0;
  upstream.respond = (request, response) => {
    running += 1;
    t.equal(running, 1);
    setImmediate(() => {
      running -= 1;
      response.end(request.url);
    });
  };
  const socket = connect(gateway.https, gateway.ca);
  let received = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => (received += chunk));
  socket.write(get + post + get + requestBytes({ headers: [] }));
  await new Promise((resolve) => socket.once('end', resolve));
  t.same(
    [...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status),
    ['200', '200', '200', '401'],
  );
  t.same(
    upstream.seen.map(({ method }) => method),
    ['GET', 'POST', 'GET'],
  );
});

// More requests than may wait had the connection destroyed: the payout was made, and its response thrown away.
t.test('lingering close: the response of a payout is delivered, however much is pipelined behind it', async (t) => {
  const upstream = await startUpstream(t);
  let latency = 0;
  upstream.respond = (_request, response) => {
    setTimeout(() => {
      response.writeHead(201, { 'content-type': 'application/json' }).end('{"success":true}');
    }, latency);
  };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { trustedProxies: ['127.0.0.1'] } });
  const secured = (bytes: string): string => bytes.replace('Host:', 'X-Forwarded-Proto: https\r\nHost:');
  for (const behind of [17, 18, 40, 400]) {
    for (const [port, ca] of [
      [gateway.https, gateway.ca],
      [gateway.http, null],
    ] as const) {
      for (latency of [0, 5, 20]) {
        upstream.seen.length = 0;
        const socket = connect(port, ca);
        let received = '';
        socket.setEncoding('latin1').on('data', (chunk: string) => (received += chunk));
        socket.on('error', (error) => (received += String(error)));
        socket.write(secured(post) + secured(get).repeat(behind));
        // Later packets meet a connection that is about to close.
        setTimeout(() => socket.write(secured(get).repeat(5)), 2);
        await new Promise((resolve) => socket.once('close', resolve));
        const statuses = [...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
        t.same(statuses, ['201'], `${behind} behind, after ${latency} ms`);
        t.match(received, /\r\nconnection: close\r\n/i);
        t.same(
          upstream.seen.map(({ method }) => method),
          ['POST'],
          'nothing that waits is carried out',
        );
      }
    }
  }
});

t.test('lingering close: a client that pipelines endlessly is disconnected after its response', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  upstream.respond = (_request, response) => setTimeout(() => response.end('{}'), 20);
  const socket = connect(gateway.https, gateway.ca).on('error', () => undefined);
  const flood = setInterval(() => socket.writable && socket.write(get.repeat(100)), 1);
  await new Promise((resolve) => socket.once('close', resolve));
  clearInterval(flood);
  t.equal(upstream.seen.length, 1);
});

// A CONNECT behind a request that was still owed its answer was an uncaught exception: anybody, without a key, could end
// the process with two lines.
const open = (bytes: string): string => bytes.replace('Connection: close\r\n', '');
const plain = open(requestBytes({ headers: [] }));
const withKey = open(requestBytes({ headers: [['x-api-key', liveKey]] }));
const tunnel = 'CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n';

t.test('a pipelined CONNECT waits for its turn and does not crash the process', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const rows: readonly (readonly [string, readonly string[]])[] = [
    [plain + tunnel, ['401', '401']],
    [withKey + tunnel, ['200', '401']],
    [withKey + plain + tunnel, ['200', '401', '401']],
    [withKey + tunnel + tunnel, ['200', '401']],
    [requestBytes({ headers: [['x-api-key', liveKey]] }) + tunnel, ['200']],
    [tunnel + plain, ['401']],
  ];
  for (const [bytes, statuses] of rows) {
    gateway.lines.length = 0;
    const received = await exchangeBytes(connect(gateway.https, gateway.ca), bytes);
    t.same(
      [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => status),
      statuses,
    );
    t.equal(gateway.lines.length, statuses.length);
  }
});

t.test('a pipelined CONNECT is dropped when its client disconnects', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const arrived = new Promise<void>((resolve) => {
    upstream.respond = () => {
      resolve();
    };
  });
  const socket = connect(gateway.https, gateway.ca);
  socket.on('error', () => undefined);
  socket.write(withKey + tunnel);
  await arrived;
  socket.destroy();
  while (gateway.lines.length === 0) await nextTurn();
  t.equal((await ask(gateway, {})).status, 401);
  t.match(gateway.lines, [{ event: { code: 'client_closed' } }, { event: { code: 'key_required' } }]);
});

// Node hands the socket of a CONNECT over with none of its listeners and time-outs. Its connection was left open for good where the
// client kept its side open, or sent anything behind the request and left: some thousand of them, without a key, and
// nobody else could connect.
t.test('the connection of a CONNECT is closed soon after its response, whatever its client does', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const ways: readonly (readonly [string, 'stays' | 'end' | 'destroy'])[] = [
    ['', 'stays'],
    ['', 'end'],
    ['more', 'end'],
    ['more', 'destroy'],
    ['x'.repeat(300_000), 'destroy'],
    ['more', 'stays'],
  ];
  const sockets = [];
  for (const [port, ca] of [
    [gateway.http, null],
    [gateway.https, gateway.ca],
  ] as const) {
    // prettier-ignore
    for (const [more, how] of ways) {
      const socket = connect(port, ca);
      socket.on('error', () => undefined);
      sockets.push(socket);
      socket.write('CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n');
      await once(socket, 'data');
      socket.write(more);
      await wait(20);
      if (how !== 'stays') socket[how]();
    }
  }
  t.equal(await leftOpen([gateway], 10_000), 0);
  t.equal(gateway.lines.length, sockets.length);
  for (const socket of sockets) socket.destroy();
});

// A refused upload is closed with a delay. What came on the connection in that time was still carried out, though its
// answer could never be given (RFC 9112 9.6).
t.test('lingering close: a request that follows a closing response is not executed (RFC 9112 9.6)', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const payout = requestBytes({ method: 'POST', path: '/v1/payouts', body: '{}', headers: [['x-api-key', liveKey]] });
  for (const port of [gateway.http, gateway.https]) {
    const socket = connect(port, port === gateway.https ? gateway.ca : null);
    socket.allowHalfOpen = true;
    socket.on('error', () => undefined);
    const answered = new Promise((resolve) => socket.once('data', resolve));
    socket.write(
      'POST /v1/payouts HTTP/1.1\r\nHost: a\r\nx-api-key: svc_live_wrong\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n',
    );
    await answered;
    socket.write(`0\r\n\r\n${payout}`);
    const lines = port === gateway.http ? 2 : 4;
    while (gateway.lines.length < lines) await new Promise((resolve) => setImmediate(resolve));
    socket.destroy();
  }
  t.same(upstream.seen, []);
  t.same(
    gateway.lines.map((line) => (line.event as { code: string }).code),
    ['https_required', 'client_closed', 'key_unknown', 'client_closed'],
  );
});
