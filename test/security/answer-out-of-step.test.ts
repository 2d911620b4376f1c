import { once } from 'node:events';
import type { Socket } from 'node:net';
import t from 'tap';
import { ask, connect, liveKey, parseAnswer, recordsOf, requestBytes } from '../edge/harness.js';
import { exchangeBytes, startBareUpstream, startTestGateway } from '../edge/harness.js';
import type { Ask, GatewayUnderTest, Teardown } from '../edge/harness.js';

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
t.test('a body where there can be none is nobody’s answer', async (t) => {
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

t.test('what stands behind an answer is nobody’s answer', async (t) => {
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

t.test('what comes on an idle connection is nobody’s answer', async (t) => {
  for (const unasked of [forged, forged.slice(0, 5), 'HTTP/1.1 100 Continue\r\n\r\n', 'HTTP/1.1 408 Timeout\r\n\r\n']) {
    const setting = await start(t, (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
    t.match(await ask(setting.gateway, get), { body: /^ok$/ });
    const [socket] = setting.sockets;
    socket?.write(unasked);
    if (socket?.destroyed === false) await once(socket, 'close');
    t.equal(await askAsOther(setting), 'm_2', JSON.stringify(unasked));
  }
});

t.test('an answer that comes when its caller has left, or waited in vain, is nobody’s', async (t) => {
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

t.test('an answer with two ends, or none, is refused, and its connection carries nothing more', async (t) => {
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
});

t.test('of an upload that was answered early nothing comes in front of the next request', async (t) => {
  const setting = await start(t, (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
  const caller = connect(setting.gateway.https, setting.gateway.ca);
  const head = `POST /v1/transactions HTTP/1.1\r\nHost: a\r\nx-api-key: ${liveKey}\r\nContent-Length: 100000\r\n\r\n`;
  const received = await exchangeBytes(caller, head + 'x'.repeat(70_000), (received) => received.endsWith('ok'));
  t.match(parseAnswer(received), { status: 200, body: /^ok$/ });
  t.equal(await askAsOther(setting), 'm_2');
  t.equal(setting.sockets.length, 2);
});
