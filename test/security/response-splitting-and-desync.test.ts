import { once } from 'node:events';
import type { Socket } from 'node:net';
import t from 'tap';
import {
  ask,
  type Ask,
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
import { Random } from '../fuzz/random.js';

const otherKey = 'svc_live_otherMerchant';
const get: Ask = { headers: [['x-api-key', liveKey]] };
const forged = 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged';

/** A gateway with two merchants, and the connections to its only service. */
interface Setting {
  readonly gateway: GatewayUnderTest;
  readonly sockets: Socket[];
}

/**
 * Starts a gateway and its only service. The service responds to the first request with `respondFirst`, which is the
 * case under test, and to any other request with the merchant's id. If a second request arrives on the first
 * connection, its response is `leftover`.
 */
async function start(
  t: Teardown,
  respondFirst: (socket: Socket) => void,
  leftover = forged,
  timeoutSeconds = 60,
): Promise<Setting> {
  const sockets: Socket[] = [];
  let isFirst = true;
  const url = await startBareUpstream(t, (socket) => {
    socket.setNoDelay(true).on('error', () => undefined);
    let carriesFirst = false;
    sockets.push(socket);
    socket.on('data', (bytes) => {
      const merchant = /^x-merchant-id: (\S+)/m.exec(bytes.toString('latin1'))?.[1] ?? '';
      if (isFirst) {
        [isFirst, carriesFirst] = [false, true];
        respondFirst(socket);
      } else if (carriesFirst) socket.write(leftover);
      else socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${merchant.length}\r\n\r\n${merchant}`);
    });
  });
  const records = { ...recordsOf(otherKey, { key: { keyId: 'key_2', merchantId: 'm_2' } }), ...recordsOf(liveKey) };
  const services = { transactions: { url, timeoutSeconds }, payouts: { url }, customers: { url } };
  return { gateway: await startTestGateway(t, { records, config: { upstreams: services } }), sockets };
}

/** The response body that the other merchant gets. */
async function askAsOther({ gateway }: Setting): Promise<string> {
  return (await ask(gateway, { headers: [['x-api-key', otherKey]] })).body;
}

// Some services send a body with a response that cannot have one. The body follows the head, which is the complete
// response. Regression: the body was taken for the response to the next request on the connection, from another
// merchant.
t.test('response desync: a body where none is allowed reaches no client', async (t) => {
  const cases: readonly (readonly [name: string, head: string, request: Ask])[] = [
    ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n', { ...get, method: 'HEAD' }],
    ['HEAD with keep-alive', 'HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n', { ...get, method: 'HEAD' }],
    ['204 with Content-Length', 'HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\n', get],
    ['204 with Transfer-Encoding: chunked', 'HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n', get],
    ['304 with Content-Length', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\n', get],
  ];
  for (const [name, head, request] of cases) {
    const setting = await start(t, (socket) => socket.write(head));
    t.match(await ask(setting.gateway, request), { status: Number(head.slice(9, 12)), body: '' }, name);
    t.equal(await askAsOther(setting), 'm_2', name);
  }
});

t.test('response desync: bytes after a response reach no client', async (t) => {
  const withLength = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
  const chunked = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n';
  for (const first of [withLength, chunked]) {
    for (const extra of [forged, '\r\n', 'HTTP/1.1 100 Continue\r\n\r\n', 'H']) {
      const setting = await start(t, (socket) => socket.write(first + extra));
      t.match(await ask(setting.gateway, get), { status: 200, body: /^ok$/ });
      t.equal(await askAsOther(setting), 'm_2', JSON.stringify(extra));
    }
  }
});

t.test('response desync: bytes on an idle connection reach no client', async (t) => {
  for (const unsolicited of [
    forged,
    forged.slice(0, 5),
    'HTTP/1.1 100 Continue\r\n\r\n',
    'HTTP/1.1 408 Timeout\r\n\r\n',
  ]) {
    const setting = await start(t, (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
    t.match(await ask(setting.gateway, get), { body: /^ok$/ });
    const [socket] = setting.sockets;
    socket?.write(unsolicited);
    if (socket?.destroyed === false) await once(socket, 'close');
    t.equal(await askAsOther(setting), 'm_2', JSON.stringify(unsolicited));
  }
});

t.test('response desync: a response after a client abort or timeout reaches no other client', async (t) => {
  for (const part of ['', forged.slice(0, 9), forged.slice(0, -1)]) {
    const leaving = await start(t, (socket) => socket.write(part), forged.slice(part.length));
    const caller = connect(leaving.gateway.https, leaving.gateway.ca);
    caller.write(requestBytes(get));
    while (!leaving.sockets.some((socket) => socket.bytesRead > 0))
      await new Promise((resolve) => setTimeout(resolve, 1));
    caller.destroy();
    const [socket] = leaving.sockets;
    if (socket?.destroyed === false) await once(socket, 'close');
    t.equal(await askAsOther(leaving), 'm_2', `client abort after ${part.length} bytes of the response`);

    const waiting = await start(t, (socket) => socket.write(part), forged.slice(part.length), 1);
    const { status, body } = await ask(waiting.gateway, get);
    t.match({ status, body }, part.length < 20 ? { status: 504 } : { status: 200, body: /^forge$/ });
    t.equal(await askAsOther(waiting), 'm_2', `timeout after ${part.length} bytes of the response`);
  }
});

t.test(
  'response splitting: a response with ambiguous framing is rejected and its connection is not reused',
  async (t) => {
    for (const head of [
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 50\r\n\r\nok',
      'HTTP/1.1 200 OK\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\n0\n\n',
      'HTTP/1.1 200 OK\r\nX: a\nContent-Length: 0\r\n\r\n',
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n',
    ]) {
      const setting = await start(t, (socket) => socket.write(head));
      t.equal((await ask(setting.gateway, get)).status, 502, JSON.stringify(head));
      t.equal(await askAsOther(setting), 'm_2', JSON.stringify(head));
    }
  },
);

t.test('response desync: the rest of an upload with an early response does not precede the next request', async (t) => {
  const setting = await start(t, (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
  const caller = connect(setting.gateway.https, setting.gateway.ca);
  const head = `POST /v1/transactions HTTP/1.1\r\nHost: a\r\nx-api-key: ${liveKey}\r\nContent-Length: 100000\r\n\r\n`;
  const received = await exchangeBytes(caller, head + 'x'.repeat(70_000), (received) => received.endsWith('ok'));
  t.match(parseResponse(received), { status: 200, body: /^ok$/ });
  t.equal(await askAsOther(setting), 'm_2');
  t.equal(setting.sockets.length, 2);
});

/** Starts a gateway and a service that sends the beginning of a response, and then calls `afterBeginning`. */
async function startBefore(t: Teardown, afterBeginning: (socket: Socket) => void): Promise<GatewayUnderTest> {
  const upstreamUrl = await startBareUpstream(t, (socket) => {
    socket.on('error', () => undefined);
    socket.on('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2,\r\n');
      afterBeginning(socket);
    });
  });
  return startTestGateway(t, { upstreamUrl, config: { trustedProxies: ['127.0.0.1'] } });
}

function askWith(gateway: GatewayUnderTest, version: string): Socket {
  const socket = connect(gateway.http, null);
  const head = `GET /v1/transactions HTTP/${version}\r\nHost: localhost\r\nx-forwarded-proto: https\r\n`;
  socket.write(`${head}x-api-key: ${liveKey}\r\n\r\n`);
  return socket;
}

// A proxy in front of the gateway may use HTTP/1.0, as nginx does by default. In HTTP/1.0, a response without a length
// ends when the connection is closed. Regression: the gateway closed the connection normally after a truncated list of
// payouts, so the proxy took the list for a complete response.
t.test('a truncated response does not end like a complete one', async (t) => {
  const gateway = await startBefore(t, (service) => {
    setTimeout(() => service.resetAndDestroy(), 300);
  });
  for (const version of ['1.0', '1.1']) {
    const socket = askWith(gateway, version);
    let received = '';
    let ending = 'end';
    socket.on('data', (bytes: Buffer) => (received += bytes.toString('latin1')));
    socket.on('error', ({ code }: NodeJS.ErrnoException) => (ending = code ?? ''));
    await new Promise<unknown>((resolve) => socket.once('close', resolve));
    t.match(received, /^HTTP\/1\.1 200 /);
    t.match(received, '[1,2,');
    const isComplete = version === '1.0' ? ending === 'end' : received.endsWith('0\r\n\r\n');
    t.equal(isComplete, false, `HTTP/${version}: ${ending}`);
    t.match(gateway.lines.splice(0), [{ event: { code: 'upstream_failed' } }]);
  }
});

t.test('a response cut off by a drain does not end like a complete one', async (t) => {
  const gateway = await startBefore(t, () => undefined);
  const socket = askWith(gateway, '1.0');
  await new Promise((resolve) => socket.once('data', resolve));
  const ending = new Promise((resolve) => {
    socket.once('error', resolve).once('end', () => {
      resolve('end');
    });
  });
  await gateway.drain();
  t.match(await ending, { code: 'ECONNRESET' });
});

// Read buffers are reused. Code that keeps a slice of one would see another client's bytes there after the next packet.
t.test('no byte of one client appears in the request of another', async (t) => {
  const seed = 20261121;
  const random = new Random(seed);
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { trustedProxies: ['127.0.0.1'] },
  });
  const clients = Array.from({ length: 40 }, (_, index) => {
    const letter = String.fromCharCode('A'.charCodeAt(0) + (index % 26));
    const body = letter.repeat(1 + random.below(30_000));
    const name = `caller-${index}-${letter.repeat(random.below(300))}`;
    const framing = random.oneIn(2)
      ? `Content-Length: ${body.length}\r\n\r\n${body}`
      : `Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\nX-Trailer: ${name}\r\n\r\n`;
    const head = `POST /v1/payouts?${index} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-Proto: https\r\nx-api-key: ${liveKey}\r\n`;
    return { name, body, socket: connect(gateway.http, null), rest: `${head}X-Name: ${name}\r\n${framing}`.repeat(2) };
  });
  await Promise.all(clients.map(({ socket }) => once(socket, 'connect')));
  for (const { socket } of clients) socket.setNoDelay(true).resume();
  while (clients.some(({ rest }) => rest.length > 0)) {
    const client = random.pick(clients);
    const size = random.pick([1, 1 + random.below(60), 1 + random.below(20_000)]);
    const part = client.rest.slice(0, size);
    client.rest = client.rest.slice(size);
    if (part.length > 0) await new Promise((resolve) => client.socket.write(part, resolve));
    await new Promise((resolve) => setImmediate(resolve));
  }
  while (gateway.lines.length < 2 * clients.length) await new Promise((resolve) => setTimeout(resolve, 5));
  for (const [index, { name, body }] of clients.entries()) {
    const seen = upstream.seen.filter(({ url }) => url === `/payouts?${index}`);
    const matches = seen.map(({ headers, body: sent }) => headers['x-name'] === name && sent.toString() === body);
    t.same(matches, [true, true], `seed ${seed}, client ${index}`);
  }
});
