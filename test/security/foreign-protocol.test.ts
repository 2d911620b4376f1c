import type { Socket } from 'node:net';
import t from 'tap';
import { Random } from '../fuzz/random.js';
import { connect, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';
import type { GatewayUnderTest } from '../edge/harness.js';

// llhttp reads the request lines of RTSP and ICE too, and Node passes on the number of the version only. `DESCRIBE /v1/payouts
// RTSP/1.1` got Fastify's own 404: no envelope, no line in the log, no look at the key. A method that HTTP does not have must
// meet every check. `GET / RTSP/1.1` is harmless: it is served, and goes upstream, as HTTP/1.1.
const head = `Host: localhost\r\nX-Forwarded-Proto: https\r\nx-api-key: ${liveKey}\r\n`;
const config = { trustedProxies: ['127.0.0.1'] };
const get = `GET /v1/transactions HTTP/1.1\r\n${head}\r\n`;
const post = `POST /v1/payouts HTTP/1.1\r\n${head}content-type: application/json\r\nContent-Length: 2\r\n\r\n{}`;

function posted(body: string): string {
  return post.replace('Content-Length: 2', `Content-Length: ${body.length}`).replace('{}', body);
}

/** Has the body in two chunks. */
function chunked(body: string, trailers = ''): string {
  const sent = [body.slice(0, 1), body.slice(1)].map((chunk) => `${chunk.length.toString(16)};a=b\r\n${chunk}\r\n`);
  return post
    .replace('Content-Length: 2', 'Transfer-Encoding: chunked')
    .replace('{}', `${sent.join('')}0\r\n${trailers}\r\n`);
}

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

/** Connections over TLS and plain ones, whose bytes are read in different ways. */
function listenersOf(gateway: GatewayUnderTest) {
  return [
    { over: 'TLS', open: () => connect(gateway.https, gateway.ca) },
    { over: 'TCP', open: () => connect(gateway.http, null) },
  ];
}

function statusesOf(received: string): string[] {
  return [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status = '']) => status);
}

/** Request lines of other protocols, and the status that a valid key gets for each. */
const lines: readonly (readonly [line: string, status: number])[] = [
  ['GET /v1/transactions RTSP/1.0', 200],
  ['POST /v1/payouts RTSP/1.0', 200],
  ['GET /v1/transactions RTSP/1.1', 200],
  ['POST /v1/payouts RTSP/1.1', 200],
  ['OPTIONS /v1/payouts RTSP/1.1', 200],
  ['GET   /v1/transactions  RTSP/1.1', 200],
  ['\r\n\r\nGET /v1/transactions RTSP/1.0', 200],
  ['\n\r\nGET /v1/transactions RTSP/1.1', 200],
  ['GET https://localhost/v1/transactions RTSP/1.1', 200],
  ['GET /v1/transactions RTSP/2.0', 400],
  ['GET /v1/transactions RTSP/0.9', 400],
  ['GET /v1/transactions HTTP/2.0', 400],
  ['GET /v1/transactions HTTP/0.9', 400],
  ['DESCRIBE /v1/payouts RTSP/1.1', 405],
  ['SETUP /v1/payouts RTSP/1.0', 405],
  ['SOURCE /v1/payouts ICE/1.0', 405],
];

t.test('a request line of another protocol meets every check, and reaches a service as HTTP/1.1 only', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  for (const { over, open } of listenersOf(gateway)) {
    for (const [line, status] of lines) {
      for (const more of ['', 'Expect: 100-continue\r\n', 'Upgrade: websocket\r\nConnection: upgrade\r\n']) {
        const bytes = `${line}\r\nConnection: close\r\n${head}${more}\r\n`;
        const name = `${over}: ${line} ${more}`;
        const unkeyed = await converse(open(), [bytes.replace(liveKey, 'svc_live_unknown')]);
        t.same(statusesOf(unkeyed), [status === 400 ? '400' : '401'], `${name}, without a valid key`);
        t.same(upstream.seen, [], `${name}, without a valid key`);
        const received = await converse(open(), [bytes]);
        t.same(statusesOf(received), [String(status)], name);
        t.match(received, /\r\n\r\n\{"success":(?:true|false),/, `${name}: envelope`);
        while (gateway.lines.length < 2) await new Promise((resolve) => setImmediate(resolve));
        t.equal(gateway.lines.splice(0).length, 2, `${name}: one line each`);
        t.same(
          upstream.seen.splice(0).map(({ headers }) => headers['x-merchant-id']),
          status === 200 ? ['m_1'] : [],
          name,
        );
      }
    }
  }
  t.same(gateway.internalErrors, []);
});

t.test('words of another protocol inside a request mean nothing, and a split request is served', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  const last = get.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
  const body = '{"remarks":"POST /v1/payouts RTSP/1.0, GET /v1/transactions RTSP/1.1"}';
  const told = posted(body);
  const quoted = `\r\n\r\n${last.replace('HTTP/', 'RTSP/')}`;
  const worded = get.replace('\r\n\r\n', '\r\nUser-Agent: GET /v1/transactions RTSP/1.1\r\n\r\n');
  const cases: readonly (readonly string[])[] = [
    [told + last],
    [told, last],
    [told + last.slice(0, 9), last.slice(9)],
    [worded + last],
    [worded.slice(0, -20), worded.slice(-20), last],
    [get, ...Array.from(last)],
    [posted(quoted) + last],
    [posted(quoted), last],
    [...Array.from(posted(quoted)), last],
    [chunked(quoted) + last],
    [chunked(quoted, 'a: RTSP/1.1\r\n'), last],
    [...Array.from(chunked(quoted)), '\r\n', last],
    [`${posted('x'.repeat(200_000))}\r\n`, last],
    [`GET /v1/transactions?x=RTSP/1.1 HTTP/1.1\r\n`, `${head}\r\n`, last],
  ];
  for (const { over, open } of listenersOf(gateway)) {
    for (const parts of cases) {
      const received = await converse(open(), parts);
      t.same(statusesOf(received), ['200', '200'], `${over}: ${JSON.stringify(parts).slice(0, 100)}`);
    }
  }
});

// A former reader of chunk sizes never ended its search after an invalid one, and the whole process stopped.
t.test('an invalid chunk size ends its connection, and nothing else', { timeout: 20_000 }, async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  const begun = post.replace('Content-Length: 2', 'Transfer-Encoding: chunked').replace('{}', '');
  for (const { over, open } of listenersOf(gateway)) {
    for (const size of ['zz', '-5', '-99999', '+5', '0x5', ' 5', '5 5', 'g5', ';a=b', 'NaN']) {
      for (const parts of [
        [begun, `${size}\r\n`],
        [`${begun}2\r\n{}\r\n`, `${size}\r\n`, get],
      ]) {
        gateway.lines.length = 0;
        t.same(statusesOf(await converse(open(), parts)), ['400'], `${over}: ${size}`);
        t.equal(gateway.lines.length, 1, `${over}: ${size}`);
      }
    }
  }
});

/** A request that HTTP allows, framed in one of the ways that it has, whose body may look like anything. */
function soundRequest(random: Random): string {
  const looks = ['', get, `GET / RTSP/1.1\r\n${head}\r\n`, '0\r\n\r\n', '\r\n', '\n', 'x'.repeat(random.below(9_000))];
  const body = random.pick(looks) + random.pick(looks) + random.bytes(random.below(40));
  const blanks = random.oneIn(4) ? '\r\n'.repeat(1 + random.below(3)) : '';
  const line = `${head}X-Filler: ${'y'.repeat(random.below(300))}\r\n`;
  if (random.oneIn(3))
    return `${blanks}${random.pick(['GET', 'HEAD'])} /v1/transactions?${random.below(99)} HTTP/1.1\r\n${line}\r\n`;
  const post = `${blanks}POST /v1/payouts HTTP/1.1\r\n${line}`;
  if (random.oneIn(2))
    return `${post}${random.pick(['Content-Length', 'content-length'])}: ${body.length}\r\n\r\n${body}`;
  let chunks = '';
  for (let at = 0, size = 1; at < body.length; at += size) {
    size = Math.min(1 + random.below(2_000), body.length - at);
    const digits = random.pick(['', '000']) + random.pick([size.toString(16), size.toString(16).toUpperCase()]);
    chunks += `${digits}${random.pick(['', ';a', ';a=b', ';a="b;c"'])}\r\n${body.slice(at, at + size)}\r\n`;
  }
  const trailers = random.pick(['', 'X-Trailer: 0\r\n', 'a: b\r\nc: GET / RTSP/1.1\r\n']);
  return `${post}Transfer-Encoding: chunked\r\n\r\n${chunks}${random.pick(['0', '000', '0;a=b'])}\r\n${trailers}\r\n`;
}

t.test('every request that HTTP allows is served, however it is framed and cut', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  const seed = 20261120;
  const random = new Random(seed);
  const end = get.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
  for (let turn = 0; turn < 120; turn += 1) {
    const requests = Array.from({ length: 1 + random.below(6) }, () => soundRequest(random));
    let rest = requests.join('') + end;
    const parts: string[] = [];
    while (rest.length > 0 && parts.length < 40) {
      const size = random.pick([1, 2, 1 + random.below(60), 1 + random.below(20_000)]);
      parts.push(rest.slice(0, size));
      rest = rest.slice(size);
    }
    const expected = [...requests, end].map(() => '200');
    for (const { over, open } of listenersOf(gateway)) {
      const received = await converse(open(), [...parts, rest]);
      t.same(statusesOf(received), expected, `${over}: seed ${seed}, turn ${turn}`);
    }
  }
});
