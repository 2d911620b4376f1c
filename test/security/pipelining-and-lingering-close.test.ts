import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { lingeringClose } from '../../src/edge/response/lingering-close.js';
import {
  ask,
  connect,
  exchangeBytes,
  liveKey,
  recordsOf,
  requestBytes,
  startTestGateway,
  startUpstream,
} from '../edge/harness.js';
import { leftOpen } from '../edge/left-open.js';

// Node starts a pipelined request at once, although its response has to wait. Node does not notify the request if its
// connection breaks meanwhile. Regression: the request was executed without a line in the log, and never released its
// upstream permit.
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
    while (gateway.lines.length < (count + 1) * 3) await new Promise((resolve) => setTimeout(resolve, 1));
  }
  t.same(
    upstream.seen.filter(({ method }) => method === 'POST'),
    [],
    'no payout was made whose response could not be delivered',
  );
  t.equal(gateway.lines.length, 15, 'each request has its log line');
  t.ok(gateway.lines.every((line) => (line.event as { code: string }).code === 'client_closed'));
  upstream.respond = (_request, response) => response.end('{}');
  for (let count = 0; count < 5; count += 1) {
    t.equal((await ask(gateway, { headers: [key] })).status, 200, 'every upstream permit is released');
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

// Regression: the expiry of the key was compared with the arrival of the headers. A payout that waited behind a slow
// response was made minutes after its key had expired.
t.test('a pipelined payout is refused if its key expires while it waits', async (t) => {
  const upstream = await startUpstream(t);
  const arrival = Date.now();
  const clock = { time: arrival, now: (): number => clock.time };
  const records = recordsOf(liveKey, { key: { expiresAt: new Date(arrival + 60_000).toISOString() } });
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, records, clock });
  const slow = new Promise<ServerResponse>((resolve) => {
    upstream.respond = ({ method }, response) => {
      if (method === 'GET') resolve(response);
      else response.end('{}');
    };
  });
  const payout = requestBytes({ method: 'POST', path: '/v1/payouts', body: '{}', headers: [key] });
  const received = exchangeBytes(connect(gateway.https, gateway.ca), get + payout);
  const response = await slow;
  clock.time += 60_000;
  response.end('{}');
  t.same(
    [...(await received).matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status),
    ['200', '401'],
  );
  t.same(
    upstream.seen.map(({ method }) => method),
    ['GET'],
    'the payout is not made',
  );
  while (gateway.lines.length < 2) await wait(1);
  t.match(gateway.lines[0], { event: { code: 'accepted' } });
  t.match(
    gateway.lines[1],
    {
      '@timestamp': new Date(arrival).toISOString(),
      event: { code: 'key_inactive', reason: /^the key expired at / },
    },
    'the payout arrived before its key expired',
  );
});

// Regression: when more requests were pipelined than may wait, the connection was destroyed. The payout had been made,
// but its response was lost.
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
  for (const pipelined of [17, 18, 40, 400]) {
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
        socket.write(secured(post) + secured(get).repeat(pipelined));
        // Later packets arrive while the connection is about to close.
        setTimeout(() => socket.write(secured(get).repeat(5)), 2);
        await new Promise((resolve) => socket.once('close', resolve));
        const statuses = [...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
        t.same(statuses, ['201'], `${pipelined} requests pipelined behind it, latency ${latency} ms`);
        t.match(received, /\r\nconnection: close\r\n/i);
        t.same(
          upstream.seen.map(({ method }) => method),
          ['POST'],
          'no waiting request is executed',
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

// Regression: each waiting request was chained to the one before it. When the first one ended, a long chain overflowed
// the stack, and the process exited. No key was necessary.
t.test('a pipelining flood does not crash the process, and is not queued in memory', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const pending: ServerResponse[] = [];
  upstream.respond = (_request, response) => pending.push(response);
  for (const [port, ca] of [
    [gateway.http, null],
    [gateway.https, gateway.ca],
  ] as const) {
    for (const first of ['', get]) {
      if (first !== '' && ca === null) continue; // a key needs TLS
      const socket = connect(port, ca).on('error', () => undefined);
      socket.resume().write(first);
      while (pending.length < first.length / get.length) await wait(1);
      socket.write('GET / HTTP/1.1\r\n\r\n'.repeat(20_000));
      await new Promise((resolve) => socket.once('close', resolve));
      t.ok(gateway.lines.length < 20_000, `${gateway.lines.length} requests were read`);
    }
  }
  t.equal(pending.length, 1, 'the connection closed although a response was pending');
  const reasons = gateway.lines.map((line) => (line.event as { reason?: string }).reason ?? '');
  t.equal(reasons.filter((reason) => reason.includes('pipelined too many requests')).length, 1);
  upstream.respond = (_request, response) => response.end('{}');
  t.equal((await ask(gateway, { headers: [key] })).status, 200);
});

// Regression: a CONNECT pipelined behind a pending request caused an uncaught exception. Two lines without a key could
// end the process.
const keepOpen = (bytes: string): string => bytes.replace('Connection: close\r\n', '');
const plain = keepOpen(requestBytes({ headers: [] }));
const withKey = keepOpen(requestBytes({ headers: [['x-api-key', liveKey]] }));
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

// Regression: the gateway created a second response object for the CONNECT, while the socket still belonged to the
// response of a dropped request.
t.test('a CONNECT behind too many pipelined requests does not crash the process', async (t) => {
  const gateway = await startTestGateway(t);
  for (const [port, ca] of [
    [gateway.http, null],
    [gateway.https, gateway.ca],
  ] as const) {
    gateway.lines.length = 0;
    const received = await exchangeBytes(connect(port, ca), plain.repeat(18) + tunnel);
    t.equal([...received.matchAll(/HTTP\/1\.1 \d+/g)].length, 1, 'only the first request gets a response');
    t.equal(gateway.lines.length, 19, 'each request has its log line');
  }
  t.equal((await ask(gateway, { headers: [] })).status, 401);
});

// Regression: requests that were pipelined after one with a valid key, and then dropped, counted as requests without an
// acceptable key. So their client was throttled. Their log lines did not say why they were dropped.
t.test('dropped requests with a key do not count against a client whose key was accepted', async (t) => {
  const upstream = await startUpstream(t);
  const unknown = get.replace(liveKey, 'svc_live_unknown');
  const rows: readonly (readonly [what: string, bytes: string, throttledSources: number])[] = [
    ['behind an accepted request', get.repeat(45), 0],
    ['without a key behind an accepted request', get + plain.repeat(44), 1],
    ['behind a request with an unknown key', unknown.repeat(45), 1],
  ];
  for (const [what, bytes, throttledSources] of rows) {
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { throttle: { badKeys: 20 } } });
    await exchangeBytes(connect(gateway.https, gateway.ca), bytes);
    const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
    t.match(metrics, `\ngateway_throttled_sources ${throttledSources}\n`, what);
    if (throttledSources > 0) continue;
    t.equal(gateway.lines.length, 45);
    const dropped = gateway.lines.filter((line) => (line.event as { code: string }).code === 'client_closed');
    t.equal(dropped.length, 44);
    for (const line of dropped)
      t.match(line, { http: { response: { status_code: 499 } }, event: { reason: /^not executed: / } });
  }
});

// Regression: a dropped request could end before the payout in progress. Then the connection seemed idle, and a drain
// closed it before the response to the payout.
t.test('a drain waits for the response of a payout behind which too many requests were pipelined', async (t) => {
  const upstream = await startUpstream(t);
  const config = { limits: { drainTimeoutSeconds: 30 } };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  const pending: ServerResponse[] = [];
  upstream.respond = (_request, response) => pending.push(response);
  const socket = connect(gateway.https, gateway.ca).on('error', () => undefined);
  let received = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => (received += chunk));
  socket.write(post);
  while (pending.length === 0) await wait(1);
  const drained = gateway.drain();
  await wait(300); // the listeners are closing now
  socket.write(get.repeat(40));
  await wait(1_500);
  pending[0]?.writeHead(201).end('{}');
  await new Promise((resolve) => socket.once('close', resolve));
  t.match(received, /^HTTP\/1\.1 201 /);
  await drained;
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
  while (gateway.lines.length === 0) await wait(1);
  t.equal((await ask(gateway, {})).status, 401);
  t.same(
    gateway.lines.map((line) => (line.event as { code: string }).code),
    ['client_closed', 'client_closed', 'key_required'],
  );
});

// Node hands over the socket of a CONNECT without listeners and timeouts. Regression: the connection stayed open
// forever if the client kept its side open, or sent data after the request and disconnected. A few thousand such
// connections, without a key, kept all other clients out.
t.test('the connection of a CONNECT is closed soon after its response, whatever the client does', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const clientBehaviours: readonly (readonly [data: string, ending: 'stays' | 'end' | 'destroy'])[] = [
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
    for (const [data, ending] of clientBehaviours) {
      const socket = connect(port, ca);
      socket.on('error', () => undefined);
      sockets.push(socket);
      socket.write('CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n');
      await once(socket, 'data');
      socket.write(data);
      await wait(20);
      if (ending !== 'stays') socket[ending]();
    }
  }
  t.equal(await leftOpen([gateway], 10_000), 0);
  t.equal(gateway.lines.length, sockets.length);
  for (const socket of sockets) socket.destroy();
});

// RFC 9112 9.6: the connection of a rejected upload is closed with a delay. Regression: a request that arrived during
// that time was still executed, although its response could never be delivered.
t.test('lingering close: a request that follows a closing response is not executed (RFC 9112 9.6)', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const payout = requestBytes({ method: 'POST', path: '/v1/payouts', body: '{}', headers: [['x-api-key', liveKey]] });
  for (const port of [gateway.http, gateway.https]) {
    const socket = connect(port, port === gateway.https ? gateway.ca : null);
    socket.allowHalfOpen = true;
    socket.on('error', () => undefined);
    const responded = new Promise((resolve) => socket.once('data', resolve));
    socket.write(
      'POST /v1/payouts HTTP/1.1\r\nHost: a\r\nx-api-key: svc_live_wrong\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n',
    );
    await responded;
    socket.write(`0\r\n\r\n${payout}`);
    const lines = port === gateway.http ? 2 : 4;
    while (gateway.lines.length < lines) await new Promise((resolve) => setTimeout(resolve, 1));
    socket.destroy();
  }
  t.same(upstream.seen, []);
  t.same(
    gateway.lines.map((line) => (line.event as { code: string }).code),
    ['https_required', 'client_closed', 'key_unknown', 'client_closed'],
  );
});

// A client reads its response only after it has sent its body. If the connection were destroyed before that, the kernel
// would reset it, and the response would be lost.
t.test('lingering close: a client has two seconds to read once it is no longer allowed to send', (t) => {
  let now = 0;
  let check = (): void => undefined;
  t.intercept(performance, 'now', { value: () => now });
  t.intercept(globalThis, 'setInterval', {
    value: (callback: () => void) => {
      check = callback;
      return { unref: () => undefined };
    },
  });
  const calls: string[] = [];
  const socket = { end: () => calls.push('end'), destroy: () => calls.push('destroy'), once: () => undefined };
  lingeringClose(socket as unknown as Socket, () => now < 60_000);
  for (const [time, expected] of [
    [59_900, ['end']],
    [60_100, ['end']],
    [61_800, ['end']],
    [61_900, ['end', 'destroy']],
  ] as const) {
    now = time;
    check();
    t.same(calls, expected, `after ${time} ms`);
  }
  t.end();
});
