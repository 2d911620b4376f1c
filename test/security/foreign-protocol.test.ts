import type { Socket } from 'node:net';
import t from 'tap';
import type { Test } from 'tap';
import { connect, liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import type { GatewayUnderTest } from '../http/harness.js';

// llhttp reads RTSP and ICE as if they were HTTP, and Node tells the version's number alone. `DESCRIBE /v1/payouts RTSP/1.1`
// got Fastify's own 404: no envelope, no line in the log, nobody had looked at its key, and its connection stayed open.
const head = `Host: localhost\r\nx-api-key: ${liveKey}\r\n`;
const get = `GET /v1/transactions HTTP/1.1\r\n${head}\r\n`;
const post = `POST /v1/payouts HTTP/1.1\r\n${head}content-type: application/json\r\nContent-Length: 2\r\n\r\n{}`;

/** Writes the parts as packets of their own, and resolves with all that came back until the gateway ended it. */
async function converse(socket: Socket, parts: readonly string[]): Promise<string> {
  let received = '';
  socket.setNoDelay(true).setEncoding('latin1');
  socket.on('data', (chunk: string) => (received += chunk)).on('error', () => undefined);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  for (const part of parts) {
    if (!socket.writable) break;
    await new Promise((resolve) => socket.write(part, 'latin1', resolve));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await closed;
  return received;
}

function statusesOf(received: string): string[] {
  return [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status = '']) => status);
}

const lines = [
  'GET /v1/transactions RTSP/1.0',
  'POST /v1/payouts RTSP/1.0',
  'GET /v1/transactions RTSP/2.0',
  'GET /v1/transactions RTSP/0.9',
  '\r\n\r\nGET /v1/transactions RTSP/1.0',
  'DESCRIBE /v1/payouts RTSP/1.1',
  'SETUP /v1/payouts RTSP/1.0',
  'SOURCE /v1/payouts ICE/1.0',
  'GET /v1/transactions HTTP/2.0',
  'GET /v1/transactions HTTP/0.9',
  'GET https://localhost/v1/transactions RTSP/1.0',
];

async function refuses(t: Test, gateway: GatewayUnderTest, received: string, before: string[], name: string) {
  t.same(statusesOf(received), [...before, '400'], name);
  t.match(received, /\r\n\r\n\{"success":false,"message":"Malformed HTTP request","data":null\}$/, `${name}: envelope`);
  while (gateway.lines.length < before.length + 1) await new Promise((resolve) => setImmediate(resolve));
  t.equal(gateway.lines.length, before.length + 1, `${name}: one line each`);
  t.match(gateway.lines.at(-1), { event: { code: 'malformed_request' } }, name);
  gateway.lines.length = 0;
}

t.test('a request of another protocol is refused, and its connection closed', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (const line of lines) {
    for (const more of ['', 'Expect: 100-continue\r\n', 'Upgrade: websocket\r\nConnection: upgrade\r\n']) {
      const bytes = `${line}\r\n${head}${more}\r\n`;
      await refuses(t, gateway, await converse(connect(gateway.https, gateway.ca), [bytes]), [], line + more);
    }
  }
  t.same(upstream.seen, []);
});

t.test('also behind other requests of its connection', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const rtsp = `GET /v1/transactions RTSP/1.0\r\n${head}\r\n`;
  const cases: readonly (readonly string[])[] = [[get + rtsp], [get, rtsp], [post + rtsp], [post, rtsp]];
  for (const parts of cases) {
    const name = JSON.stringify(parts).slice(0, 60);
    await refuses(t, gateway, await converse(connect(gateway.https, gateway.ca), parts), ['200'], name);
    t.equal(upstream.seen.splice(0).length, 1, `${name}: the one before was carried out`);
  }
});

t.test('words of another protocol elsewhere in a request mean nothing, and a split request is served', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const last = get.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
  const body = '{"remarks":"POST /v1/payouts RTSP/1.0, GET /v1/transactions RTSP/1.1"}';
  const told = post.replace('Content-Length: 2', `Content-Length: ${body.length}`).replace('{}', body);
  const worded = get.replace('\r\n\r\n', '\r\nUser-Agent: GET /v1/transactions RTSP/1.1\r\n\r\n');
  const cases: readonly (readonly string[])[] = [
    [told + last],
    [told, last],
    [told + last.slice(0, 9), last.slice(9)],
    [worded + last],
    [worded.slice(0, -20), worded.slice(-20), last],
    [get, ...Array.from(last)],
    [`GET /v1/transactions?x=RTSP/1.1 HTTP/1.1\r\n`, `${head}\r\n`, last],
  ];
  for (const parts of cases) {
    const received = await converse(connect(gateway.https, gateway.ca), parts);
    t.same(statusesOf(received), ['200', '200'], JSON.stringify(parts).slice(0, 100));
  }
});
