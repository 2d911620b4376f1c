import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import type { Test } from 'tap';
import { gatewayErrors } from '../../src/policy/gateway-errors.js';
import { freePort } from '../adapters/redis-server.js';
import { exchangeBytes, liveKey, parseResponse, recordsOf, startBareUpstream } from '../edge/harness.js';
import type { Teardown } from '../edge/harness.js';
import { clientAddress, connectClient, connectTls, curl, deploy, send } from './deployment.js';
import type { FrontKind } from './fixture.js';
import { sendFrames } from './http2-frames.js';

const json = 'application/json; charset=utf-8';
const bodyBytes = 1_048_576;

function envelope(status: number, message: string): Response {
  const headers = { 'content-type': json, 'cache-control': 'no-store' };
  return { status, headers, body: `{"success":false,"message":"${message}","data":null}` };
}

interface Response {
  readonly status: number | undefined;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

/** Starts a TCP relay in front of a port; a test can cut the relay's connections. */
async function startRelay(t: Teardown, port: number): Promise<{ readonly port: number; readonly cut: () => void }> {
  const sockets = new Set<Socket>();
  const relay = (from: Socket, to: Socket): void => {
    sockets.add(from);
    from.on('error', () => undefined);
    from.on('close', () => {
      sockets.delete(from);
      to.destroy();
    });
    from.pipe(to);
  };
  const server = net.createServer((near) => {
    const far = net.connect(port, '127.0.0.1');
    relay(near, far);
    relay(far, near);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  t.teardown(() => {
    cut();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, cut };
}

/** Waits for a condition. If it is never met, the timeout of the test ends the wait. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(10);
}

/** The tests that each front must pass. */
export function testFront(kind: FrontKind): void {
  const test = (name: string, run: (t: Test) => Promise<void>): void => {
    t.test(`${kind.name}: ${name}`, { skip: kind.missing }, run);
  };

  test('curl sends a key with a blank behind it twice: the service sees the same key twice', async (t) => {
    const deployment = await deploy(t, kind);
    const headers = [`x-api-key: ${liveKey}`, 'idempotency-key: invoice-42 ', 'expect: 100-continue'];
    const args = ['--data', '{}', ...headers.flatMap((header) => ['--header', header])];
    for (let count = 0; count < 2; count += 1) {
      t.equal(await curl(deployment, ...args, '--write-out', ' %{http_version}', '--output', '-'), `${ok} 2`);
    }
    const keys = deployment.upstream.seen.map(({ headers: seen }) => seen['idempotency-key']);
    t.same(keys, ['invoice-42', 'invoice-42']);
  });

  test('names with all characters of a token arrive', async (t) => {
    const { front, upstream } = await deploy(t, kind);
    const names = ['x_custom', 'x.custom', "x!#$%&'*+-.^_`|~1", '_', '9'];
    for (const name of names) {
      await sendFrames(connectTls(front, 'h2'), 'GET', '/v1/transactions', [
        ['x-api-key', liveKey],
        [name, 'here'],
      ]);
    }
    t.same(
      upstream.seen.map(({ headers }, index) => headers[names[index] ?? '']),
      names.map(() => 'here'),
    );
  });

  test('the client address is that of the client, whatever it says of itself', async (t) => {
    const records = recordsOf(liveKey, { merchant: { ipAllowlist: [clientAddress] } });
    const { front, gateway, upstream } = await deploy(t, kind, { records, torExits: ['127.0.0.3', '198.51.100.9'] });
    const client = connectClient(t, front);
    const claims = ['198.51.100.9', '127.0.0.4', 'garbage'].map((claim) => ({
      'x-forwarded-for': claim,
      'x-forwarded-proto': 'http',
      forwarded: `for=${claim};proto=http`,
      'x-real-ip': claim,
    }));
    for (const claim of [{}, ...claims]) t.equal((await send(client, claim)).status, 200);
    const other = connectClient(t, front, '127.0.0.4');
    const notAllowed = { ':path': '/v1/transactions', 'x-forwarded-for': clientAddress };
    t.match(await send(other, notAllowed), envelope(401, 'IP address not allowed'));
    const exit = connectClient(t, front, '127.0.0.3');
    t.match(await send(exit, notAllowed), envelope(401, 'Tor traffic is not allowed'));
    await until(() => gateway.lines.length === 6);
    const logged = gateway.lines.map((line) => (line.client as { ip: string }).ip);
    t.same(logged, [...Array<string>(4).fill(clientAddress), '127.0.0.4', '127.0.0.3']);
    t.same(
      upstream.seen.map(({ headers }) => [headers['x-forwarded-for'], headers['x-forwarded-proto']]),
      Array(4).fill([clientAddress, 'https']),
    );
  });

  test('refusals of the gateway pass unchanged', async (t) => {
    const { front, upstream } = await deploy(t, kind);
    const client = connectClient(t, front);
    const challenge = { 'www-authenticate': /^ApiKey /, 'x-request-id': /^.{26}$/ };
    t.match(await send(client, { 'x-api-key': undefined }), { ...envelope(401, 'API Key is required') });
    t.match((await send(client, { 'x-api-key': undefined })).headers, challenge);
    t.match(await send(client, { ':path': '/v1/nowhere' }), envelope(404, 'Not found'));
    t.match(
      await send(client, { ':path': `/v1/transactions?${'q'.repeat(9000)}` }),
      envelope(414, 'Request target too long'),
    );
    const tooLarge = Object.fromEntries(['a', 'b', 'c'].map((name) => [`x-${name}`, 'v'.repeat(7000)]));
    t.match(await send(client, tooLarge), envelope(431, 'Request header fields too large'));
    upstream.respond = (_request, response) => response.writeHead(503, { 'retry-after': '7' }).end('of the service');
    const refused = await send(client, {});
    t.match(refused, { status: 503, body: 'of the service', headers: { 'retry-after': '7' } });
  });

  test('a body as large as the gateway takes arrives, a larger one is refused', async (t) => {
    const { front, upstream } = await deploy(t, kind);
    const client = connectClient(t, front);
    const post = { ':method': 'POST', ':path': '/v1/payouts' };
    const body = Buffer.alloc(bodyBytes, 'x');
    const unannounced = { ...post, 'content-length': undefined };
    t.equal((await send(client, post, body)).status, 200);
    t.equal((await send(client, unannounced, body)).status, 200);
    t.ok(upstream.seen.every((one) => one.body.equals(body)));
    const larger = Buffer.concat([body, body]);
    const refused = envelope(413, 'Request body too large');
    t.match(await send(client, post, larger), refused);
    t.match(await send(connectClient(t, front), unannounced, larger), refused, 'not announced');
    t.equal(upstream.seen.length, 2);
  });

  test('its messages are those of the gateway', (t) => {
    const configured = [
      ...readFileSync(kind.file, 'utf8').matchAll(/\b([45]\d\d) [^\n]*?"(?:message":")?([A-Z][^"]+)"/g),
    ];
    const known = new Set(Object.values(gatewayErrors).map(({ status, message }) => `${status} ${message}`));
    const messages = configured.map(([, status = '', message = '']) => `${status} ${message}`);
    t.ok(messages.length >= 8);
    t.same(
      messages.filter((one) => !known.has(one)),
      ['403 Forbidden'],
    );
    return Promise.resolve();
  });

  /** Returns the response that the front itself must send while no gateway is available. */
  function unavailable(method: string): Response {
    const { body } = envelope(503, 'Service temporarily unavailable');
    const own = { 'content-type': json, 'cache-control': 'no-store', 'retry-after': '1', ...kind.ownHeaders };
    const headers = { ...own, 'content-length': String(body.length) };
    return { status: 503, headers, body: method === 'HEAD' ? '' : body };
  }

  /** Returns the response without its date, and without the headers that only one HTTP version has. */
  function compared({ status, headers, body }: Response): Response {
    const left = Object.entries(headers).filter(([name]) => !/^(?::status|date|connection)$/.test(name));
    return { status, headers: Object.fromEntries(left), body };
  }

  function matches(t: Test, response: Response, method: string): void {
    const [found, expected] = [compared(response), unavailable(method)];
    t.match(found, expected, method);
    t.same(Object.keys(found.headers).toSorted(), Object.keys(expected.headers).toSorted());
  }

  test('without a gateway its own error has the envelope, and nothing else', async (t) => {
    const { front, gateway } = await deploy(t, kind);
    const client = connectClient(t, front);
    t.equal((await send(client, {})).status, 200);
    await gateway.drain();
    // Wait until a busy front has noticed that its keep-alive connection was closed.
    await sleep(500);
    for (const method of ['GET', 'POST', 'HEAD']) {
      matches(t, await send(client, { ':method': method }, method === 'POST' ? '{}' : ''), method);
    }
    const fields = `host: api.example\r\nx-api-key: ${liveKey}\r\nconnection: close\r\n`;
    const bytes = await exchangeBytes(connectTls(front, 'http/1.1'), `GET /v1/payouts HTTP/1.1\r\n${fields}\r\n`);
    const { status, headers, body } = parseResponse(bytes);
    const named = headers.map(([name, value]) => [name.toLowerCase(), value] as const);
    matches(t, { status, headers: Object.fromEntries(named), body }, 'GET');
    t.notMatch(await front.written(), liveKey);
  });

  test('a gateway that has never been there is the same', async (t) => {
    const { front } = await deploy(t, kind, { between: freePort });
    matches(t, await send(connectClient(t, front), {}), 'GET');
  });

  // HAProxy's health check queries /readyz, so HAProxy sends no request to a gateway that is not ready.
  if (kind.name !== 'haproxy') {
    test('the 503 of a gateway that is not ready passes unchanged', async (t) => {
      const accessLog = { write: () => 0, problem: () => 'no room', lost: () => 0, foreignBytes: () => 0 };
      const sink = { ...accessLog, heldBytes: () => 0, close: () => Promise.resolve() };
      const { front } = await deploy(t, kind, { accessLog: sink });
      const response = await send(connectClient(t, front), {});
      t.match(response, envelope(503, 'Service temporarily unavailable'));
      t.match(response.headers, { 'retry-after': /^\d+$/, 'x-request-id': /^.{26}$/ });
    });
  }

  test('a gateway whose certificate has another name gets nothing', async (t) => {
    const { front, gateway, upstream } = await deploy(t, kind, { gatewayName: 'other.internal' });
    const { status } = await send(connectClient(t, front), {});
    t.equal(status, kind.mistrusts);
    t.same([gateway.lines, upstream.seen], [[], []]);
  });

  test('a POST whose connection to the gateway ends is not sent again', async (t) => {
    let cut = (): void => undefined;
    const { front, upstream } = await deploy(t, kind, {
      between: async (gateway) => {
        const relay = await startRelay(t, gateway.https);
        ({ cut } = relay);
        return relay.port;
      },
    });
    const { respond } = upstream;
    const post = { ':method': 'POST', ':path': '/v1/payouts', 'idempotency-key': 'invoice-42' };
    const failed = envelope(502, 'Bad gateway');
    upstream.respond = () => {
      cut();
    };
    const client = connectClient(t, front);
    t.match(await send(client, post, '{"on":"a new connection"}'), failed);
    upstream.respond = respond;
    t.equal((await send(client, post, '{"first":true}')).status, 200);
    upstream.respond = () => {
      cut();
    };
    t.match(await send(client, post, '{"on":"a kept connection"}'), failed);
    upstream.respond = respond;
    t.equal((await send(client, post)).status, 200);
    upstream.respond = () => {
      cut();
    };
    t.match(await send(client, post), failed, 'without a body, which Go would send again for its key');
    const bodies = upstream.seen.map(({ body }) => body.toString());
    t.same(bodies, ['{"on":"a new connection"}', '{"first":true}', '{"on":"a kept connection"}', '', '']);
  });

  test('bodies are passed on as they come, and one that breaks off is not whole', async (t) => {
    const services: Socket[] = [];
    let received = '';
    const url = await startBareUpstream(t, (socket) => {
      services.push(socket);
      socket.on('error', () => undefined);
      socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
    });
    const { front } = await deploy(t, kind, { upstreamUrl: url });
    const stream = connectClient(t, front).request({ ':method': 'POST', ':path': '/v1/payouts', 'x-api-key': liveKey });
    stream.on('error', () => undefined);
    stream.write(`${'x'.repeat(70_000)}first part`); // so much that the gateway does not wait for the remaining body
    await until(() => received.includes('first part'));
    stream.end('second part');
    await until(() => received.includes('second part'));
    for (const socket of services) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nfirst piece');
    const [piece] = (await once(stream, 'data')) as [Buffer];
    t.equal(piece.toString(), 'first piece');
    const closed = new Promise((resolve) => stream.once('close', resolve));
    for (const socket of services) socket.destroy();
    await closed;
    t.not(stream.rstCode, 0, 'the stream is reset');
  });

  test('what is no request is refused by the front itself', async (t) => {
    const { front, gateway } = await deploy(t, kind);
    const requests = [
      'garbage\r\n\r\n',
      'GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n',
      'GET / HTTP/1.1\r\nhost: a\r\nx-note: v\rw\r\n\r\n',
      'GET / HTTP/1.1\r\nhost: a\r\nx note: v\r\n\r\n',
    ];
    for (const request of requests) {
      const response = parseResponse(await exchangeBytes(connectTls(front, 'http/1.1'), request));
      t.equal(response.status, 400, request);
      if (kind.envelopesMalformed) t.equal(response.body, envelope(400, 'Malformed HTTP request').body, request);
    }
    if (kind.envelopesMalformed) {
      const long = 'x'.repeat(40_000);
      for (const [target, status, message] of [
        [`/${long} HTTP/1.1`, 414, 'Request target too long'],
        [`/ HTTP/1.1\r\nx-long: ${long}`, 431, 'Request header fields too large'],
      ] as const) {
        const bytes = await exchangeBytes(connectTls(front, 'http/1.1'), `GET ${target}\r\nhost: a\r\n\r\n`);
        const { status: given, body } = parseResponse(bytes);
        t.same([given, body], [status, envelope(status, message).body]);
      }
    }
    const fields = Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`x-${index}`, 'v'.repeat(4000)]));
    const refused = await send(connectClient(t, front), fields).then(
      ({ status }) => status === 431,
      () => true,
    );
    t.ok(refused, 'a head of 160,000 bytes');
    t.same(gateway.lines, []);
  });

  test('clients of HTTP/1.1 are served as well', async (t) => {
    const deployment = await deploy(t, kind);
    const printed = await curl(
      deployment,
      '--http1.1',
      '--header',
      `x-api-key: ${liveKey}`,
      '--write-out',
      ' %{http_version}',
    );
    t.equal(printed, `${ok} 1.1`);
    t.match(deployment.upstream.seen[0]?.headers, { 'x-forwarded-for': clientAddress, 'x-forwarded-proto': 'https' });
  });
}

/** The response body of the service in these tests. */
const ok = '{"success":true,"message":"OK","data":[]}';
