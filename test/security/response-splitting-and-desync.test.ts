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
  parseAnswer,
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

/** A gateway with two merchants, and the connections to its one service. */
interface Setting {
  readonly gateway: GatewayUnderTest;
  readonly sockets: Socket[];
}

/**
 * A service that answers the first request as a case has it, and each other one with the merchant whose it is. On the
 * connection of the first one it answers with what was left over, as if that were the next answer.
 */
async function start(t: Teardown, answerFirst: (socket: Socket) => void, left = forged): Promise<Setting> {
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
        answerFirst(socket);
      } else if (carriesFirst) socket.write(left);
      else socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${merchant.length}\r\n\r\n${merchant}`);
    });
  });
  const records = { ...recordsOf(otherKey, { key: { keyId: 'key_2', merchantId: 'm_2' } }), ...recordsOf(liveKey) };
  const services = { transactions: { url, timeoutSeconds: 1 }, payouts: { url }, customers: { url } };
  return { gateway: await startTestGateway(t, { records, config: { upstreams: services } }), sockets };
}

/** What the other merchant is answered. */
async function askAsOther({ gateway }: Setting): Promise<string> {
  return (await ask(gateway, { headers: [['x-api-key', otherKey]] })).body;
}

// Some services send a body where none can be, and it comes behind the head that was the whole answer. It was taken for
// the answer to the next request on the connection, which was another merchant's.
t.test('response desync: a body where none is allowed reaches no client', async (t) => {
  const cases: readonly (readonly [name: string, head: string, ask: Ask])[] = [
    ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n', { ...get, method: 'HEAD' }],
    ['HEAD, kept', 'HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n', { ...get, method: 'HEAD' }],
    ['204 with a length', 'HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\n', get],
    ['204 with chunks', 'HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n', get],
    ['304 with a length', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\n', get],
  ];
  for (const [name, head, what] of cases) {
    const setting = await start(t, (socket) => socket.write(head));
    t.match(await ask(setting.gateway, what), { status: Number(head.slice(9, 12)), body: '' }, name);
    t.equal(await askAsOther(setting), 'm_2', name);
  }
});

t.test('response desync: bytes after a response reach no client', async (t) => {
  const answer = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
  const chunked = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n';
  for (const first of [answer, chunked]) {
    for (const behind of [forged, '\r\n', 'HTTP/1.1 100 Continue\r\n\r\n', 'H']) {
      const setting = await start(t, (socket) => socket.write(first + behind));
      t.match(await ask(setting.gateway, get), { status: 200, body: /^ok$/ });
      t.equal(await askAsOther(setting), 'm_2', JSON.stringify(behind));
    }
  }
});

t.test('response desync: bytes on an idle connection reach no client', async (t) => {
  for (const unasked of [forged, forged.slice(0, 5), 'HTTP/1.1 100 Continue\r\n\r\n', 'HTTP/1.1 408 Timeout\r\n\r\n']) {
    const setting = await start(t, (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
    t.match(await ask(setting.gateway, get), { body: /^ok$/ });
    const [socket] = setting.sockets;
    socket?.write(unasked);
    if (socket?.destroyed === false) await once(socket, 'close');
    t.equal(await askAsOther(setting), 'm_2', JSON.stringify(unasked));
  }
});

t.test('response desync: a response after a client abort or timeout reaches no other client', async (t) => {
  for (const part of ['', forged.slice(0, 9), forged.slice(0, -1)]) {
    const leaving = await start(t, (socket) => socket.write(part), forged.slice(part.length));
    const caller = connect(leaving.gateway.https, leaving.gateway.ca);
    caller.write(requestBytes(get));
    while (!leaving.sockets.some((socket) => socket.bytesRead > 0))
      await new Promise((resolve) => setImmediate(resolve));
    caller.destroy();
    const [socket] = leaving.sockets;
    if (socket?.destroyed === false) await once(socket, 'close');
    t.equal(await askAsOther(leaving), 'm_2', `left behind ${part.length} bytes`);

    const waiting = await start(t, (socket) => socket.write(part), forged.slice(part.length));
    const { status, body } = await ask(waiting.gateway, get);
    t.match({ status, body }, part.length < 20 ? { status: 504 } : { status: 200, body: /^forge$/ });
    t.equal(await askAsOther(waiting), 'm_2', `waited behind ${part.length} bytes`);
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
  t.match(parseAnswer(received), { status: 200, body: /^ok$/ });
  t.equal(await askAsOther(setting), 'm_2');
  t.equal(setting.sockets.length, 2);
});

/** A gateway before a service that begins its answers, and then does this. */
async function startBefore(t: Teardown, then: (socket: Socket) => void): Promise<GatewayUnderTest> {
  const upstreamUrl = await startBareUpstream(t, (socket) => {
    socket.on('error', () => undefined);
    socket.on('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2,\r\n');
      then(socket);
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

// Behind a proxy that asks by HTTP/1.0, as nginx does unless it is told otherwise, a part of a list of payouts was a whole answer.
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
    const isWhole = version === '1.0' ? ending === 'end' : received.endsWith('0\r\n\r\n');
    t.equal(isWhole, false, `HTTP/${version}: ${ending}`);
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

// Read buffers are reused. Code that keeps a part of one would see another caller's bytes there after the next packet.
t.test('no byte of one client appears in the request of another', async (t) => {
  const seed = 20261121;
  const random = new Random(seed);
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { trustedProxies: ['127.0.0.1'] },
  });
  const callers = Array.from({ length: 40 }, (_, index) => {
    const letter = String.fromCharCode('A'.charCodeAt(0) + (index % 26));
    const body = letter.repeat(1 + random.below(30_000));
    const name = `caller-${index}-${letter.repeat(random.below(300))}`;
    const framing = random.oneIn(2)
      ? `Content-Length: ${body.length}\r\n\r\n${body}`
      : `Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\nX-Trailer: ${name}\r\n\r\n`;
    const head = `POST /v1/payouts?${index} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-Proto: https\r\nx-api-key: ${liveKey}\r\n`;
    return { name, body, socket: connect(gateway.http, null), left: `${head}X-Name: ${name}\r\n${framing}`.repeat(2) };
  });
  await Promise.all(callers.map(({ socket }) => once(socket, 'connect')));
  for (const { socket } of callers) socket.setNoDelay(true).resume();
  while (callers.some(({ left }) => left.length > 0)) {
    const caller = random.pick(callers);
    const size = random.pick([1, 1 + random.below(60), 1 + random.below(20_000)]);
    const part = caller.left.slice(0, size);
    caller.left = caller.left.slice(size);
    if (part.length > 0) await new Promise((resolve) => caller.socket.write(part, resolve));
    await new Promise((resolve) => setImmediate(resolve));
  }
  while (gateway.lines.length < 2 * callers.length) await new Promise((resolve) => setTimeout(resolve, 5));
  for (const [index, { name, body }] of callers.entries()) {
    const seen = upstream.seen.filter(({ url }) => url === `/payouts?${index}`);
    const told = seen.map(({ headers, body: sent }) => headers['x-name'] === name && sent.toString() === body);
    t.same(told, [true, true], `seed ${seed}, caller ${index}`);
  }
});
