import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { pepperOf } from '../../src/gateway/api-key.js';
import { recordsOf, ask, connect, exchangeBytes, liveKey, parseResponse, requestBytes } from './harness.js';
import { startBareUpstream, startTestGateway, startUpstream } from './harness.js';
import type { RecordingUpstream } from './harness.js';

const key = ['x-api-key', liveKey] as const;

function envelope(message: string): string {
  return JSON.stringify({ success: false, message, data: null });
}

/** Resolves when the gateway's one upstream connection is closed. */
function closeOf(upstream: RecordingUpstream): Promise<void> {
  const [socket] = upstream.sockets;
  return new Promise((resolve) => {
    if (socket === undefined) resolve();
    else
      socket.once('close', () => {
        resolve();
      });
  });
}

t.test('an accepted request is forwarded unchanged: method, path, query and body bytes', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const everyByte = Buffer.from(Array.from({ length: 256 }, (_, index) => index)).toString('latin1');
  const cases: [string, string, string, string][] = [
    ['GET', '/v1/transactions', '/transactions', ''],
    [
      'GET',
      "/v1/transactions?a=1&a=2&b=%2F%00&c=a+b&d[]='x'?&&",
      "/transactions?a=1&a=2&b=%2F%00&c=a+b&d[]='x'?&&",
      '',
    ],
    ['GET', '/v1/transactions?', '/transactions?', ''],
    ['GET', '/v1/transactions/', '/transactions/', ''],
    ['GET', '/v1/dev/customers/%C3%A9t%c3%a9@x,y', '/dev/customers/%C3%A9t%c3%a9@x,y', ''],
    ['HEAD', '/v1/transactions', '/transactions', ''],
    ['POST', '/v1/payouts', '/payouts', '{"amount": 1.50,  "currency":"NGN"}'],
    ['POST', '/v1/payouts', '/payouts', everyByte],
    ['POST', '/v1/payouts', '/payouts', ''],
    ['PUT', '/v1/dev/customers/1', '/dev/customers/1', '{'],
    ['PATCH', '/v1/dev/customers/1', '/dev/customers/1', 'x'.repeat(300_000)],
    ['DELETE', '/v1/dev/customers/1', '/dev/customers/1', ''],
    ['DELETE', '/v1/dev/customers/1', '/dev/customers/1', 'why'],
    ['OPTIONS', '/v1/dev/payouts', '/dev/payouts', ''],
    ['GET', '/v1/transactions', '/transactions', 'a body of a GET'],
  ];
  for (const [method, path, expected, body] of cases) {
    upstream.seen.length = 0;
    const response = await ask(gateway, { method, path, body, headers: [key, ['content-type', 'application/json']] });
    t.equal(response.status, 200, `${method} ${path}`);
    const [seen] = upstream.seen;
    t.match({ method: seen?.method, url: seen?.url }, { method, url: expected });
    t.equal(seen?.body.toString('latin1'), body);
    t.equal(upstream.seen.length, 1);
  }
  const odd = await ask(gateway, {
    method: 'POST',
    path: '/v1/payouts',
    body: '{}',
    headers: [key, ['content-type', '!']],
  });
  t.equal(odd.status, 200, 'content types are for the upstream to check');
  t.same(gateway.internalErrors, []);
});

t.test('a chunked body is forwarded complete and unchanged', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const head = `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${liveKey}\r\nConnection: close\r\n`;
  const response = parseResponse(
    await exchangeBytes(
      connect(gateway.https, gateway.ca),
      `${head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n`,
    ),
  );
  t.equal(response.status, 200);
  t.equal(upstream.seen[0]?.body.toString(), 'abcdefg');
});

t.test('only the gateway tells the upstream who the client is; client headers cannot', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const response = await ask(gateway, {
    method: 'POST',
    path: '/v1/payouts',
    body: '{}',
    headers: [
      key,
      ['X-Merchant-Id', 'evil'],
      ['x-merchant-id', 'evil2'],
      ['x_merchant_id', 'evil3'],
      ['X_MERCHANT-ID', 'evil4'],
      ['x-merchant-key-id', 'evil'],
      ['X-Merchant-Anything', 'evil'],
      ['x-gateway-assertion', 'evil'],
      ['X_Gateway_Assertion', 'evil'],
      ['X-Forwarded-For', '198.51.100.9'],
      ['X_Forwarded_For', '198.51.100.9'],
      ['X-Forwarded-Proto', 'http'],
      ['X-Forwarded-Host', 'evil.example'],
      ['X-Forwarded-User', 'root'],
      ['Forwarded', 'for=198.51.100.9'],
      ['X-Real-IP', '198.51.100.9'],
      ['x_api_key', 'svc_live_other'],
      ['X-Request-Id', 'evil'],
      ['X_Request_Id', 'evil'],
      ['Connection', 'x-merchant-id, x-merchant-environment, x-request-id, x-custom-hop'],
      ['X-Custom-Hop', 'hop'],
      ['Keep-Alive', 'timeout=5'],
      ['TE', 'trailers'],
      ['Proxy-Authorization', 'Basic eDp5'],
      ['Proxy-Connection', 'keep-alive'],
      ['Upgrade', 'websocket'],
      ['X-Kept', 'one'],
      ['x-kept', 'two'],
      ['Authorization', 'Bearer kept'],
      ['Idempotency-Key', 'kept'],
    ],
  });
  t.equal(response.status, 200);
  const headers = upstream.seen[0]?.headers ?? {};
  t.match(headers, {
    'x-merchant-id': 'm_1',
    'x-merchant-key-id': 'key_1',
    'x-merchant-environment': 'live',
    'x-request-id': response.header('x-request-id'),
    'x-forwarded-for': '127.0.0.1',
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'localhost',
    'x-kept': 'one, two',
    authorization: 'Bearer kept',
    'idempotency-key': 'kept',
    host: `127.0.0.1:${upstream.port}`,
  });
  const names = (upstream.seen[0]?.rawHeaders ?? []).filter((_, index) => index % 2 === 0);
  const allowed = new Set(['x-merchant-id', 'x-merchant-key-id', 'x-merchant-environment', 'x-request-id', 'x-kept'])
    .add('x-forwarded-for')
    .add('x-forwarded-proto')
    .add('x-forwarded-host')
    .add('traceparent');
  for (const name of ['authorization', 'idempotency-key', 'host', 'connection', 'content-length']) allowed.add(name);
  t.same(
    names.filter((name) => !allowed.has(name.toLowerCase())),
    [],
    'no other spelling of a reserved header is forwarded',
  );
  t.equal(names.filter((name) => name.toLowerCase().replaceAll('_', '-') === 'x-merchant-id').length, 1);
  t.notMatch(JSON.stringify(upstream.seen), liveKey);
});

t.test('the response is forwarded unchanged, except hop-by-hop headers', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  upstream.respond = (_request, response) => {
    response.writeHead(201, [
      ...['Content-Type', 'application/json'],
      ...['Set-Cookie', 'a=1'],
      ...['Set-Cookie', 'b=2'],
      ...['Location', '/dev/payouts/1'],
      ...['Connection', 'close, X-Hop'],
      ...['X-Hop', '1'],
      ...['Keep-Alive', 'timeout=9'],
      ...['Proxy-Authenticate', 'Basic'],
      ...['X-Request-Id', 'upstream'],
      ...['Content-Length', '4'],
    ]);
    response.end('{ } ');
  };
  const bytes = requestBytes({ headers: [key] }).replace('Connection: close\r\n', '');
  const received = await exchangeBytes(connect(gateway.https, gateway.ca), bytes, (text) => text.endsWith('{ } '));
  const forwarded = parseResponse(received);
  t.equal(forwarded.status, 201);
  t.equal(forwarded.body, '{ } ');
  t.same(
    forwarded.headers.filter(([name]) => name === 'set-cookie').map(([, value]) => value),
    ['a=1', 'b=2'],
  );
  t.equal(forwarded.header('location'), '/dev/payouts/1');
  t.equal(forwarded.header('content-length'), '4');
  t.equal(forwarded.header('x-hop'), undefined);
  t.equal(forwarded.header('proxy-authenticate'), undefined);
  t.equal(
    forwarded.header('connection'),
    'keep-alive',
    "the upstream's connection header applies to its own connection only",
  );
  t.notMatch(forwarded.header('keep-alive'), '9');
  t.match(forwarded.header('x-request-id'), /^[0-9A-Z]{26}$/);

  upstream.respond = (_request, response) => response.writeHead(204).end();
  const empty = await ask(gateway, { method: 'DELETE', path: '/v1/dev/customers/1', headers: [key] });
  t.strictSame({ status: empty.status, body: empty.body }, { status: 204, body: '' });
  upstream.respond = (_request, response) => response.writeHead(200, { 'content-length': '42' }).end();
  const head = await ask(gateway, { method: 'HEAD', headers: [key] });
  t.strictSame({ status: head.status, body: head.body }, { status: 200, body: '' });
  t.equal(head.header('content-length'), '42');
  upstream.respond = (_request, response) => response.writeHead(304, { etag: '"1"' }).end();
  t.equal((await ask(gateway, { headers: [key] })).status, 304);
  for (const status of [400, 422, 500, 503]) {
    upstream.respond = (_request, response) => response.writeHead(status).end('theirs');
    const theirs = await ask(gateway, { headers: [key] });
    t.match({ status: theirs.status, body: theirs.body }, { status }, 'upstream errors are forwarded unchanged');
    t.match(theirs.body, 'theirs');
  }
  t.equal(upstream.seen.length, 8, 'each request is sent once, even after a 503');
});

t.test("an upstream failure is a 502 or 504 in the envelope, without the upstream's address", async (t) => {
  const post = { method: 'POST', path: '/v1/payouts', body: '{"amount":1}', headers: [key] };
  const failing: [string, (socket: Socket) => void, number, string][] = [
    ['reset at once', (socket) => socket.resetAndDestroy(), 502, 'Bad gateway'],
    ['reset after the request', (socket) => socket.once('data', () => socket.resetAndDestroy()), 502, 'Bad gateway'],
    ['closed without a response', (socket) => socket.once('data', () => socket.end()), 502, 'Bad gateway'],
    ['garbage', (socket) => socket.once('data', () => socket.end('SSH-2.0-OpenSSH_9.2\r\n\r\n')), 502, 'Bad gateway'],
    [
      'an incomplete response head',
      (socket) => socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-')),
      502,
      'Bad gateway',
    ],
    [
      'an unknown status',
      (socket) => socket.once('data', () => socket.end('HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n')),
      502,
      'Bad gateway',
    ],
    ['silence', () => undefined, 504, 'Gateway timeout'],
  ];
  for (const [name, onConnection, status, message] of failing) {
    let received = '';
    const url = await startBareUpstream(t, (socket) => {
      socket.on('error', () => undefined);
      socket.on('data', (chunk) => (received += chunk.toString('latin1')));
      onConnection(socket);
    });
    const gateway = await startTestGateway(t, {
      config: { upstreams: { payouts: { url, timeoutSeconds: status === 504 ? 1 : 60 } } },
    });
    const response = await ask(gateway, post);
    t.strictSame({ status: response.status, body: response.body }, { status, body: envelope(message) }, name);
    t.ok(received.split('POST /payouts').length <= 2, `${name}: sent at most once`);
    t.equal(response.header('content-type'), 'application/json; charset=utf-8');
    t.match(gateway.lines[0], { event: { code: status === 504 ? 'upstream_timeout' : 'upstream_failed' } });
    t.same(gateway.internalErrors, []);
  }
  const gateway = await startTestGateway(t, { upstreamUrl: 'http://127.0.0.1:1' });
  const refused = await ask(gateway, post);
  t.match(
    { status: refused.status, body: refused.body },
    { status: 502, body: envelope('Bad gateway') },
    'connection refused',
  );
});

t.test('a response that breaks off midway is cut off, never completed', async (t) => {
  const url = await startBareUpstream(t, (socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf');
      setTimeout(() => socket.resetAndDestroy(), 50);
    });
  });
  const gateway = await startTestGateway(t, { upstreamUrl: url });
  const response = await ask(gateway, { headers: [key] });
  t.strictSame({ status: response.status, body: response.body }, { status: 200, body: 'half' });
  await gateway.drain();
  t.match(gateway.lines[0], { event: { code: 'upstream_failed' } });
});

t.test("a stalled response is cut off after the service's idle timeout, and not before", async (t) => {
  const seconds = 1;
  const url = await startBareUpstream(t, (socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n');
      // Each piece arrives within the timeout; all of them together take longer.
      for (const at of [0, 600, 1200]) setTimeout(() => socket.write(`${at} `), at);
    });
  });
  const gateway = await startTestGateway(t, {
    config: { upstreams: { transactions: { url, timeoutSeconds: seconds } } },
  });
  const startedAt = performance.now();
  const response = await ask(gateway, { headers: [key] });
  t.strictSame({ status: response.status, body: response.body }, { status: 200, body: '0 600 1200 ' });
  t.ok(performance.now() - startedAt >= 1200 + seconds * 1000 - 50, 'not earlier');
  await gateway.drain();
  t.match(gateway.lines, [
    { event: { code: 'upstream_timeout', reason: /: the response was cut off \(no data for 1 s\)$/ } },
  ]);
});

t.test('a client that reads slowly does not make its service time out', async (t) => {
  const body = 'x'.repeat(8 * 1024 * 1024);
  const url = await startBareUpstream(t, (socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`));
  });
  const gateway = await startTestGateway(t, { config: { upstreams: { transactions: { url, timeoutSeconds: 1 } } } });
  const socket = connect(gateway.https, gateway.ca);
  socket.pause().write(requestBytes({ headers: [key, ['Connection', 'close']] }));
  await wait(2500);
  let received = 0;
  socket.on('data', (chunk: Buffer) => (received += chunk.length)).resume();
  await once(socket, 'close');
  t.ok(received > body.length, `${received} bytes of the response received`);
  await gateway.drain();
  t.match(gateway.lines, [{ event: { code: 'accepted' }, http: { response: { body: { bytes: body.length } } } }]);
});

t.test("a response that breaks off before its first body byte is a 502, without the upstream's headers", async (t) => {
  for (const rest of ['', 'ZZ\r\n']) {
    const url = await startBareUpstream(t, (socket) => {
      socket.on('error', () => undefined);
      const framing = rest === '' ? 'Content-Length: 100' : 'Transfer-Encoding: chunked';
      socket.once('data', () =>
        socket.end(`HTTP/1.1 200 OK\r\nETag: "x"\r\nSet-Cookie: a=1\r\n${framing}\r\n\r\n${rest}`),
      );
    });
    const gateway = await startTestGateway(t, { upstreamUrl: url });
    const response = await ask(gateway, { headers: [key] });
    t.strictSame({ status: response.status, body: response.body }, { status: 502, body: envelope('Bad gateway') });
    t.equal(response.header('etag'), undefined);
    t.equal(response.header('set-cookie'), undefined);
    t.match(response.header('x-request-id'), /^[0-9A-Z]{26}$/);
    t.same(gateway.internalErrors, []);
    t.match(gateway.lines, [{ event: { code: 'upstream_failed' } }]);
  }
});

t.test('a 304 may have the Content-Length of the representation', async (t) => {
  const url = await startBareUpstream(t, (socket) => {
    socket.on('error', () => undefined);
    socket.on('data', () => socket.write('HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 1234\r\n\r\n'));
  });
  const gateway = await startTestGateway(t, { upstreamUrl: url });
  for (let count = 0; count < 3; count += 1) {
    const response = await ask(gateway, { headers: [key] });
    t.strictSame({ status: response.status, body: response.body }, { status: 304, body: '' });
    t.equal(response.header('etag'), '"x"');
  }
  t.same(gateway.internalErrors, []);
});

t.test('interim (1xx) responses are skipped, and the final response is forwarded', async (t) => {
  const interim =
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n';
  const [head, body] = ['HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n', 'HTTP/1.1 100 Continue\r\n\r\n'];
  const cuts: readonly string[][] = [
    [interim + head, body], // bytes of a body that look like an interim response
    [`${interim.repeat(9)}${interim.slice(0, 5)}`, interim.slice(5, 11), interim.slice(11) + head, body],
    [...Array.from(interim), head, body],
    [interim.slice(0, 23), interim.slice(23, 25), interim.slice(25) + head.slice(0, 9), head.slice(9), body],
    [head, body],
  ];
  let parts: string[] = [];
  const url = await startBareUpstream(t, (socket) => {
    socket.setNoDelay(true).on('error', () => undefined);
    socket.on('data', () => {
      const write = (): void => {
        const part = parts.shift();
        if (part !== undefined) socket.write(part, () => setImmediate(write));
      };
      write();
    });
  });
  const gateway = await startTestGateway(t, { upstreamUrl: url });
  for (const method of ['GET', 'POST']) {
    for (const cut of cuts) {
      parts = [...cut];
      const sent = method === 'GET' ? {} : { method, path: '/v1/payouts', body: '{}' };
      const response = await ask(gateway, { ...sent, headers: [key] });
      t.strictSame({ status: response.status, body: response.body }, { status: 200, body });
      t.equal(response.header('link'), undefined);
    }
  }
  parts = [`HTTP/1.1 100 Continue\r\nx: ${'y'.repeat(20_000)}`];
  t.equal((await ask(gateway, { headers: [key] })).status, 502, 'an interim response without an end');
  parts = ['HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n'];
  t.equal((await ask(gateway, { headers: [key] })).status, 502, '101 without an Upgrade request');
});

t.test('too many requests in flight are a 503 with retry-after, and requests in flight continue', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    config: { upstreams: { transactions: { url: upstream.url, maxInFlight: 1 } } },
  });
  const arrived = new Promise<() => void>((resolve) => {
    upstream.respond = (_request, response) => {
      resolve(() => response.end('first'));
    };
  });
  const first = ask(gateway, { headers: [key] });
  const release = await arrived;
  const second = await ask(gateway, { headers: [key] });
  t.match(
    { status: second.status, body: second.body, retry: second.header('retry-after') },
    { status: 503, body: envelope('Service temporarily unavailable'), retry: '1' },
  );
  release();
  t.match(await first, { status: 200 });
  upstream.respond = (_request, response) => response.end('third');
  t.match(await ask(gateway, { headers: [key] }), { status: 200 }, 'the permit is released');
});

t.test('a body above the limit is a 413, declared or streamed', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { limits: { bodyBytes: 1024 } } });
  const head = `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${liveKey}\r\n`;
  const open = () => connect(gateway.https, gateway.ca);
  const declared = parseResponse(
    await exchangeBytes(open(), `${head}Content-Length: 1025\r\nExpect: 100-continue\r\n\r\n`),
  );
  t.match({ status: declared.status, body: declared.body }, { status: 413, body: envelope('Request body too large') });
  t.equal(upstream.sockets.size, 0, 'declared: nothing is forwarded');
  const chunk = `200\r\n${'x'.repeat(512)}\r\n`;
  const streamed = parseResponse(
    await exchangeBytes(open(), `${head}Transfer-Encoding: chunked\r\n\r\n${chunk.repeat(5)}`),
  );
  t.match({ status: streamed.status, body: streamed.body }, { status: 413, body: envelope('Request body too large') });
  t.equal(upstream.seen.length, 0, 'streamed: the upstream never got a complete request');
  const exact = await ask(gateway, { method: 'POST', path: '/v1/payouts', body: 'x'.repeat(1024), headers: [key] });
  t.equal(exact.status, 200, 'exactly the limit is allowed');
});

t.test('Expect: 100-continue gets 100 only if the client may send the body', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const head = (value: string) =>
    `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${value}\r\nConnection: close\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n`;
  const refused = await exchangeBytes(connect(gateway.https, gateway.ca), head('svc_live_wrong'));
  t.match(refused, /^HTTP\/1\.1 401 /);
  const socket = connect(gateway.https, gateway.ca);
  const received = exchangeBytes(socket, head(liveKey));
  await once(socket, 'data');
  socket.write('{}');
  t.match(await received, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK\r\n/);
  t.equal(upstream.seen[0]?.headers.expect, undefined);
});

t.test('a GET is aborted upstream when its client hangs up; a POST runs to completion', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (const method of ['GET', 'POST']) {
    const socket = connect(gateway.https, gateway.ca);
    const arrived = new Promise<ServerResponse>((resolve) => {
      upstream.respond = (_request, response) => {
        resolve(response);
      };
    });
    socket.write(requestBytes({ method, path: '/v1/payouts', headers: [key], body: method === 'POST' ? '{}' : '' }));
    const response = await arrived;
    const closed = method === 'GET' ? closeOf(upstream) : Promise.resolve();
    socket.destroy();
    await closed;
    if (method === 'POST') {
      await ask(gateway, {}); // by the time of this response the gateway has noticed that the other client left
      t.equal(upstream.sockets.size, 1, 'the POST is still in flight');
      response.end('{}');
    }
  }
  await gateway.drain();
  t.match(
    gateway.lines
      .map((line) => [(line.event as { code: string }).code, line.http] as const)
      .toSorted(([one], [other]) => one.localeCompare(other)),
    [
      ['client_closed', { response: { status_code: 499 } }],
      ['client_closed', { response: { status_code: 499 } }],
      ['key_required', { response: { status_code: 401 } }],
    ],
  );
});

t.test('an upload that its client aborts is never completed upstream', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const socket = connect(gateway.https, gateway.ca);
  socket.write(
    `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${liveKey}\r\nContent-Length: 100000\r\n\r\n{"amount":${' '.repeat(70_000)}`,
  );
  while (upstream.sockets.size === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  const closed = closeOf(upstream);
  socket.destroy();
  await closed;
  t.same(upstream.seen, []);
});

t.test(
  'a body is forwarded unchanged, in one packet with its head or after it, and the next request is unaffected',
  async (t) => {
    const upstream = await startUpstream(t);
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { trustedProxies: ['127.0.0.1'] } });
    const head = `Host: localhost\r\nX-Forwarded-Proto: https\r\nx-api-key: ${liveKey}\r\n`;
    const next = `GET /v1/transactions HTTP/1.1\r\n${head}Connection: close\r\n\r\n`;
    const bodies = [
      '{}',
      `{"a":"${'\u00fc'.repeat(100)}"}`,
      'x'.repeat(16_384),
      'y'.repeat(65_536),
      'z'.repeat(65_537),
    ];
    for (const body of bodies) {
      const bytes = Buffer.byteLength(body);
      const post = `POST /v1/payouts HTTP/1.1\r\n${head}Content-Length: ${bytes}\r\n\r\n`;
      for (const parts of [
        [post + body + next],
        [post + body, next],
        [post, body + next],
        [post + body.slice(0, 1), body.slice(1), next],
      ]) {
        for (const open of [() => connect(gateway.https, gateway.ca), () => connect(gateway.http, null)]) {
          const socket = open();
          const closed = once(socket, 'close');
          gateway.lines.length = 0;
          upstream.seen.length = 0;
          let received = '';
          socket.setNoDelay(true).on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
          for (const part of parts) {
            await new Promise((resolve) => socket.write(part, resolve));
            await wait(2);
          }
          await closed;
          while (gateway.lines.length < 2) await wait(1);
          const name = `${bytes} bytes, the first ${parts[0]?.length}`;
          t.same(received.match(/HTTP\/1\.1 200 /g)?.length, 2, name);
          t.ok(upstream.seen[0]?.body.toString() === body, name);
          t.same(upstream.seen[0]?.headers['content-length'], String(bytes), name);
          t.match(gateway.lines[0], { http: { request: { body: { bytes } } } }, name);
        }
      }
    }
  },
);

t.test('a small upload that its client aborts never reaches the upstream', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const socket = connect(gateway.https, gateway.ca);
  socket.write(
    `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${liveKey}\r\nContent-Length: 100\r\n\r\n{"amount":`,
  );
  await once(socket, 'secureConnect');
  await ask(gateway, {}); // by the time of this response the gateway has started on the other request
  socket.destroy();
  while (gateway.lines.length < 2) await new Promise((resolve) => setTimeout(resolve, 1));
  t.same(
    gateway.lines.map((line) => (line.event as { code: string }).code),
    ['key_required', 'client_closed'],
  );
  t.equal(upstream.sockets.size, 0);
});

t.test('a pepper changes the look-up id', async (t) => {
  const upstream = await startUpstream(t);
  const pepper = pepperOf(Buffer.from('pepper'));
  const peppered = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    pepper,
    records: recordsOf(liveKey, {}, pepper),
  });
  t.equal((await ask(peppered, { headers: [key] })).status, 200);
  const plain = await startTestGateway(t, { upstreamUrl: upstream.url, pepper, records: recordsOf(liveKey) });
  t.equal((await ask(plain, { headers: [key] })).status, 401);
});
