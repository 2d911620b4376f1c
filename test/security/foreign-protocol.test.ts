import type { Socket } from 'node:net';
import t from 'tap';
import type { Test } from 'tap';
import { Random } from '../fuzz/random.js';
import { connect, liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import type { GatewayUnderTest } from '../http/harness.js';

// llhttp reads RTSP and ICE as if they were HTTP, and Node tells the version's number alone. `DESCRIBE /v1/payouts RTSP/1.1`
// got Fastify's own 404: no envelope, no line in the log, nobody had looked at its key, and its connection stayed open.
// `GET /v1/payouts RTSP/1.1` was served, and so was RTSP/1.0 in two packets or with two blanks.
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

const lines = [
  'GET /v1/transactions RTSP/1.0',
  'POST /v1/payouts RTSP/1.0',
  'GET /v1/transactions RTSP/1.1',
  'POST /v1/payouts RTSP/1.1',
  'OPTIONS /v1/payouts RTSP/1.1',
  'GET   /v1/transactions  RTSP/1.1',
  'GET /v1/transactions RTSP/2.0',
  'GET /v1/transactions RTSP/0.9',
  '\r\n\r\nGET /v1/transactions RTSP/1.0',
  '\n\r\nGET /v1/transactions RTSP/1.1',
  'DESCRIBE /v1/payouts RTSP/1.1',
  'SETUP /v1/payouts RTSP/1.0',
  'SOURCE /v1/payouts ICE/1.0',
  'GET /v1/transactions HTTP/2.0',
  'GET /v1/transactions HTTP/0.9',
  'GET https://localhost/v1/transactions RTSP/1.0',
  'GET https://localhost/v1/transactions RTSP/1.1',
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
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  for (const { over, open } of listenersOf(gateway)) {
    for (const line of lines) {
      for (const more of ['', 'Expect: 100-continue\r\n', 'Upgrade: websocket\r\nConnection: upgrade\r\n']) {
        const bytes = `${line}\r\n${head}${more}\r\n`;
        await refuses(t, gateway, await converse(open(), [bytes]), [], `${over}: ${line}${more}`);
      }
    }
  }
  t.same(upstream.seen, []);
});

t.test('however its bytes are cut', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  const whole = `\r\nGET /v1/transactions RTSP/1.1\r\n${head}\r\n`;
  for (const { over, open } of listenersOf(gateway)) {
    for (let at = 1; at < whole.length; at++) {
      const parts = [whole.slice(0, at), whole.slice(at)];
      await refuses(t, gateway, await converse(open(), parts), [], `${over}: cut at ${at}`);
    }
    await refuses(t, gateway, await converse(open(), Array.from(whole)), [], `${over}: byte by byte`);
    const far = [`GET ${' '.repeat(30_000)}`, ' '.repeat(30_000), get.slice('GET '.length)];
    await refuses(t, gateway, await converse(open(), far), [], `${over}: more blanks than a head may have`);
  }
  t.same(upstream.seen, []);
});

t.test('also behind a PROXY header', async (t) => {
  const gateway = await startTestGateway(t, { config: { proxyProtocol: true, trustedProxies: ['127.0.0.1'] } });
  const rtsp = `GET /v1/transactions RTSP/1.1\r\n${head}\r\n`;
  const proxy = 'PROXY TCP4 203.0.113.7 127.0.0.1 40000 80\r\n';
  for (const parts of [[proxy + rtsp], [proxy, rtsp], [proxy + rtsp.slice(0, 9), rtsp.slice(9)]]) {
    const name = JSON.stringify(parts).slice(0, 80);
    await refuses(t, gateway, await converse(connect(gateway.http, null), parts), [], name);
  }
});

t.test('also behind other requests of its connection', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  const rtsp = `GET /v1/transactions RTSP/1.1\r\n${head}\r\n`;
  const requests = [
    get,
    post,
    posted(`x\n${get}`),
    chunked('{}'),
    chunked(`\r\n0\r\n\r\n${get}`),
    chunked(get, 'a: b\r\n'),
  ];
  for (const { over, open } of listenersOf(gateway)) {
    for (const before of requests) {
      for (const parts of [
        [before + rtsp],
        [before, rtsp],
        [before + rtsp.slice(0, 25), rtsp.slice(25)],
        [...Array.from(before), rtsp],
      ]) {
        const name = `${over}: ${JSON.stringify(parts).slice(0, 60)}`;
        await refuses(t, gateway, await converse(open(), parts), ['200'], name);
        t.equal(upstream.seen.splice(0).length, 1, `${name}: the one before was carried out`);
      }
    }
  }
});

t.test('words of another protocol elsewhere in a request mean nothing, and a split request is served', async (t) => {
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

// A size that is no number was added to where the next request begins: the search for it never ended, and nobody was
// answered any more.
t.test('a chunk whose size is no number ends its connection, and nothing else', { timeout: 20_000 }, async (t) => {
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

t.test('no request that HTTP allows is taken for one of another protocol', async (t) => {
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
