import http from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import {
  connect,
  exchangeBytes,
  type GatewayUnderTest,
  liveKey,
  recordsOf,
  startBareUpstream,
  startTestGateway,
  startUpstream,
  type Teardown,
} from '../edge/harness.js';
import { Random } from '../fuzz/random.js';

// If two programs disagree on where a request ends, an attacker can hide one request inside another. Each case is a
// published disagreement. The gateway sends one response, closes the connection, and executes nothing.
const keyHead = `Host: localhost\r\nx-api-key: ${liveKey}\r\n`;
/** The payout that the attacker hides. It would be executed if it were parsed as a request. */
const hiddenPayout = `POST /v1/payouts HTTP/1.1\r\n${keyHead}Content-Length: 2\r\n\r\n{}`;

function withFraming(framing: string, body: string): string {
  return `POST /v1/transactions HTTP/1.1\r\n${keyHead}${framing}\r\n${body}`;
}

const emptyChunksThenHidden = `0\r\n\r\n${hiddenPayout}`;
const refused: readonly (readonly [string, string])[] = [
  ['CL.TE', withFraming('Content-Length: 6\r\nTransfer-Encoding: chunked\r\n', emptyChunksThenHidden)],
  ['TE.CL', withFraming('Transfer-Encoding: chunked\r\nContent-Length: 6\r\n', emptyChunksThenHidden)],
  ['CL.CL, different values', withFraming('Content-Length: 2\r\nContent-Length: 4\r\n', `{}${hiddenPayout}`)],
  ['CL.CL, equal values', withFraming('Content-Length: 2\r\nContent-Length: 2\r\n', `{}${hiddenPayout}`)],
  ['CL as a list', withFraming('Content-Length: 2, 2\r\n', `{}${hiddenPayout}`)],
  ['CL with a sign', withFraming('Content-Length: +2\r\n', `{}${hiddenPayout}`)],
  ['CL, negative', withFraming('Content-Length: -2\r\n', `{}${hiddenPayout}`)],
  ['CL, hexadecimal', withFraming('Content-Length: 0x2\r\n', `{}${hiddenPayout}`)],
  ['CL with a fraction', withFraming('Content-Length: 2.0\r\n', `{}${hiddenPayout}`)],
  // CVE-2024-27982 (Node): Content-Length with a leading space was not recognised.
  ['CL with a leading space', withFraming(' Content-Length: 2\r\n', `{}${hiddenPayout}`)],
  ['CL with a space between digits', withFraming('Content-Length: 2 2\r\n', `{}${hiddenPayout}`)],
  // HAProxy CVE-2023-40225: an empty Content-Length was forwarded unchanged.
  ['CL, empty', withFraming('Content-Length: \r\n', `{}${hiddenPayout}`)],
  ['CL beyond 64 bits', withFraming('Content-Length: 18446744073709551618\r\n', `{}${hiddenPayout}`)],
  // TE.TE: the header is obfuscated so that only one of the two parsers recognises it.
  ['TE: xchunked', withFraming('Transfer-Encoding: xchunked\r\n', emptyChunksThenHidden)],
  ['TE: chunked, identity', withFraming('Transfer-Encoding: chunked, identity\r\n', emptyChunksThenHidden)],
  ['TE: identity, chunked', withFraming('Transfer-Encoding: identity, chunked\r\n', emptyChunksThenHidden)],
  ['TE: gzip, chunked', withFraming('Transfer-Encoding: gzip, chunked\r\n', emptyChunksThenHidden)],
  ['TE twice', withFraming('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n', emptyChunksThenHidden)],
  [
    'TE twice, once unknown',
    withFraming('Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n', emptyChunksThenHidden),
  ],
  // CVE-2021-22959 (llhttp): a space between the header name and the colon.
  ['TE with a tab before the colon', withFraming('Transfer-Encoding\t: chunked\r\n', emptyChunksThenHidden)],
  ['TE with a space before the colon', withFraming('Transfer-Encoding : chunked\r\n', emptyChunksThenHidden)],
  [
    'TE with a vertical tab before the value',
    withFraming('Transfer-Encoding:\u000bchunked\r\n', emptyChunksThenHidden),
  ],
  ['TE in quotes', withFraming('Transfer-Encoding: "chunked"\r\n', emptyChunksThenHidden)],
  ['TE with a parameter', withFraming('Transfer-Encoding: chunked;a=b\r\n', emptyChunksThenHidden)],
  ['TE, empty', withFraming('Transfer-Encoding: \r\n', emptyChunksThenHidden)],
  // CVE-2022-32213 (llhttp): a coding that contains the word chunked was taken for chunked.
  ['TE: chunkedchunked', withFraming('Transfer-Encoding: chunkedchunked\r\n', emptyChunksThenHidden)],
  // CVE-2022-32214 and CVE-2022-35256 (llhttp): a header that ends with a bare LF or CR.
  ['a bare LF after a header', withFraming('X: y\nTransfer-Encoding: chunked\r\n', emptyChunksThenHidden)],
  // CVE-2023-30589 (Node): CR alone ended a header.
  ['a bare CR within a header', withFraming('X: y\rTransfer-Encoding: chunked\r\n', emptyChunksThenHidden)],
  [
    'a bare LF at the end of the head',
    `POST /v1/transactions HTTP/1.1\r\n${keyHead}Content-Length: 2\r\n\n{}${hiddenPayout}`,
  ],
  ['a request line that ends with a bare LF', `GET /v1/transactions HTTP/1.1\n${keyHead}\r\n`],
  // CVE-2022-32215 (llhttp): a folded header line that one parser takes for a separate header.
  ['TE, folded', withFraming('Transfer-Encoding:\r\n chunked\r\n', emptyChunksThenHidden)],
  ['a folded header', withFraming('X: y\r\n Transfer-Encoding: chunked\r\n', emptyChunksThenHidden)],
  ['a folded header with a tab', withFraming('X: y\r\n\tContent-Length: 2\r\n', `{}${hiddenPayout}`)],
  ['a folded line before the first header', `GET /v1/transactions HTTP/1.1\r\n X: y\r\n${keyHead}\r\n`],
  // CVE-2021-22960, CVE-2025-22871 (Go): a bare LF in a chunk-size line, or a line end hidden in a chunk extension.
  [
    'a chunk size that ends with a bare LF',
    withFraming('Transfer-Encoding: chunked\r\n', `2\n{}\r\n${emptyChunksThenHidden}`),
  ],
  [
    'a chunk extension with a bare LF',
    withFraming('Transfer-Encoding: chunked\r\n', `2;a\nxx\r\n{}\r\n${emptyChunksThenHidden}`),
  ],
  [
    'a chunk extension with a bare CR',
    withFraming('Transfer-Encoding: chunked\r\n', `2;a\rxx\r\n{}\r\n${emptyChunksThenHidden}`),
  ],
  ['chunk data without a final CRLF', withFraming('Transfer-Encoding: chunked\r\n', `2\r\n{}0\r\n\r\n${hiddenPayout}`)],
  ['a chunk size with 0x', withFraming('Transfer-Encoding: chunked\r\n', `0x2\r\n{}\r\n${emptyChunksThenHidden}`)],
  ['a chunk size with a sign', withFraming('Transfer-Encoding: chunked\r\n', `+2\r\n{}\r\n${emptyChunksThenHidden}`)],
  [
    'a chunk size with a leading space',
    withFraming('Transfer-Encoding: chunked\r\n', ` 2\r\n{}\r\n${emptyChunksThenHidden}`),
  ],
  [
    'a chunk size beyond 64 bits',
    withFraming('Transfer-Encoding: chunked\r\n', `10000000000000002\r\n{}\r\n${emptyChunksThenHidden}`),
  ],
  [
    'a chunk size with a space between digits',
    withFraming('Transfer-Encoding: chunked\r\n', `2 2\r\n{}\r\n${emptyChunksThenHidden}`),
  ],
  // CVE-2019-9900 (Envoy): NUL ends a string in C.
  ['NUL in a header value', withFraming('X: a\0b\r\nContent-Length: 2\r\n', `{}${hiddenPayout}`)],
  ['NUL in a header name', withFraming('X\0: a\r\nContent-Length: 2\r\n', `{}${hiddenPayout}`)],
  // HAProxy CVE-2023-25725: a header with an empty name hid the headers after it.
  ['an empty header name', withFraming(': a\r\nContent-Length: 2\r\n', `{}${hiddenPayout}`)],
  ['a header name with a parenthesis', withFraming('X(: a\r\nContent-Length: 2\r\n', `{}${hiddenPayout}`)],
  ['a header without a colon', withFraming('X-Without\r\nContent-Length: 2\r\n', `{}${hiddenPayout}`)],
  // RFC 9112 6.1: HTTP/1.0 has no chunked coding, so programs interpret such a request differently.
  [
    'TE on HTTP/1.0',
    `POST /v1/transactions HTTP/1.0\r\n${keyHead}Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n${emptyChunksThenHidden}`,
  ],
  ['the HTTP/2 connection preface', `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${hiddenPayout}`],
  ['HTTP/2.0', `GET /v1/transactions HTTP/2.0\r\n${keyHead}\r\n${hiddenPayout}`],
  ['HTTP/1.2', `GET /v1/transactions HTTP/1.2\r\n${keyHead}\r\n${hiddenPayout}`],
  ['http in lower case', `GET /v1/transactions http/1.1\r\n${keyHead}\r\n${hiddenPayout}`],
  ['no version', `GET /v1/transactions\r\n\r\n${hiddenPayout}`],
  ['a space in the request target', `GET /v1/trans actions HTTP/1.1\r\n${keyHead}\r\n${hiddenPayout}`],
  ['two Host headers', `GET /v1/transactions HTTP/1.1\r\n${keyHead}Host: other.example\r\n\r\n`],
  ['a list in the Host header', `GET /v1/transactions HTTP/1.1\r\nHost: a, b\r\nx-api-key: ${liveKey}\r\n\r\n`],
  ['another host in the request target', `GET https://other.example/v1/transactions HTTP/1.1\r\n${keyHead}\r\n`],
];

t.test('request smuggling: ambiguous framing is rejected and its connection closed', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (const [name, bytes] of refused) {
    gateway.lines.length = 0;
    upstream.seen.length = 0;
    const received = await exchangeBytes(connect(gateway.https, gateway.ca), bytes);
    const statuses = [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => status);
    t.same(statuses, ['400'], name);
    t.match(
      received,
      /\r\n\r\n\{"success":false,"message":"[^"]+","data":null\}$/,
      `${name}: the response has the envelope`,
    );
    t.match(received, /\r\nconnection: close\r\n/i, `${name}: it is the last response on its connection`);
    t.same(upstream.seen, [], `${name}: nothing is executed`);
    const id = /\r\nx-request-id: (\S+)/i.exec(received)?.[1];
    const ids = gateway.lines.map((line) => (line.http as { request: { id: string } }).request.id);
    t.equal(ids.filter((one) => one === id).length, 1, `${name}: one log line for the response`);
  }
  t.same(gateway.internalErrors, []);
});

// llhttp also parses request lines of RTSP and ICE, and Node exposes only the version number. Regression: `DESCRIBE
// /v1/payouts RTSP/1.1` got Fastify's own 404, without the envelope, a log line or a check of the key. A request with a
// method that HTTP does not have must go through every check. `GET / RTSP/1.1` is harmless: it is served and forwarded
// as HTTP/1.1.
const trustedHead = `Host: localhost\r\nX-Forwarded-Proto: https\r\nx-api-key: ${liveKey}\r\n`;
const behindProxy = { trustedProxies: ['127.0.0.1'] };
const listTransactions = `GET /v1/transactions HTTP/1.1\r\n${trustedHead}\r\n`;
const createPayout = `POST /v1/payouts HTTP/1.1\r\n${trustedHead}content-type: application/json\r\nContent-Length: 2\r\n\r\n{}`;

function postPayout(body: string): string {
  return createPayout.replace('Content-Length: 2', `Content-Length: ${body.length}`).replace('{}', body);
}

/** A payout whose body is sent in two chunks. */
function postChunked(body: string, trailers = ''): string {
  const sent = [body.slice(0, 1), body.slice(1)].map((chunk) => `${chunk.length.toString(16)};a=b\r\n${chunk}\r\n`);
  return createPayout
    .replace('Content-Length: 2', 'Transfer-Encoding: chunked')
    .replace('{}', `${sent.join('')}0\r\n${trailers}\r\n`);
}

/** Writes each part as a separate packet. Resolves with everything received until the gateway closes the connection. */
async function sendParts(socket: Socket, parts: readonly string[]): Promise<string> {
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

/** The TLS and the plain listener: the gateway reads their bytes in different ways. */
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
const requestLines: readonly (readonly [line: string, status: number])[] = [
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

t.test('a request line of another protocol passes every check and is forwarded as HTTP/1.1 only', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: behindProxy });
  for (const { over, open } of listenersOf(gateway)) {
    for (const [line, status] of requestLines) {
      for (const more of ['', 'Expect: 100-continue\r\n', 'Upgrade: websocket\r\nConnection: upgrade\r\n']) {
        const bytes = `${line}\r\nConnection: close\r\n${trustedHead}${more}\r\n`;
        const name = `${over}: ${line} ${more}`;
        const unkeyed = await sendParts(open(), [bytes.replace(liveKey, 'svc_live_unknown')]);
        t.same(statusesOf(unkeyed), [status === 400 ? '400' : '401'], `${name}, without a valid key`);
        t.same(upstream.seen, [], `${name}, without a valid key`);
        const received = await sendParts(open(), [bytes]);
        t.same(statusesOf(received), [String(status)], name);
        t.match(received, /\r\n\r\n\{"success":(?:true|false),/, `${name}: envelope`);
        while (gateway.lines.length < 2) await new Promise((resolve) => setTimeout(resolve, 1));
        t.equal(gateway.lines.splice(0).length, 2, `${name}: one log line per request`);
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

t.test('protocol words inside a request have no effect, and a request split across packets is served', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: behindProxy });
  const last = listTransactions.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
  const body = '{"remarks":"POST /v1/payouts RTSP/1.0, GET /v1/transactions RTSP/1.1"}';
  const mention = postPayout(body);
  const requestText = `\r\n\r\n${last.replace('HTTP/', 'RTSP/')}`;
  const inUserAgent = listTransactions.replace('\r\n\r\n', '\r\nUser-Agent: GET /v1/transactions RTSP/1.1\r\n\r\n');
  const cases: readonly (readonly string[])[] = [
    [mention + last],
    [mention, last],
    [mention + last.slice(0, 9), last.slice(9)],
    [inUserAgent + last],
    [inUserAgent.slice(0, -20), inUserAgent.slice(-20), last],
    [listTransactions, ...Array.from(last)],
    [postPayout(requestText) + last],
    [postPayout(requestText), last],
    [...Array.from(postPayout(requestText)), last],
    [postChunked(requestText) + last],
    [postChunked(requestText, 'a: RTSP/1.1\r\n'), last],
    [...Array.from(postChunked(requestText)), '\r\n', last],
    [`${postPayout('x'.repeat(200_000))}\r\n`, last],
    [`GET /v1/transactions?x=RTSP/1.1 HTTP/1.1\r\n`, `${trustedHead}\r\n`, last],
  ];
  for (const { over, open } of listenersOf(gateway)) {
    for (const parts of cases) {
      const received = await sendParts(open(), parts);
      t.same(statusesOf(received), ['200', '200'], `${over}: ${JSON.stringify(parts).slice(0, 100)}`);
    }
  }
});

// Regression: a former parser of chunk sizes looped forever after an invalid size, which blocked the whole process.
t.test('an invalid chunk size ends its own connection only', { timeout: 100_000 }, async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: behindProxy });
  const head = createPayout.replace('Content-Length: 2', 'Transfer-Encoding: chunked').replace('{}', '');
  for (const { over, open } of listenersOf(gateway)) {
    for (const size of ['zz', '-5', '-99999', '+5', '0x5', ' 5', '5 5', 'g5', ';a=b', 'NaN']) {
      for (const parts of [
        [head, `${size}\r\n`],
        [`${head}2\r\n{}\r\n`, `${size}\r\n`, listTransactions],
      ]) {
        gateway.lines.length = 0;
        t.same(statusesOf(await sendParts(open(), parts)), ['400'], `${over}: ${size}`);
        t.equal(gateway.lines.length, 1, `${over}: ${size}`);
      }
    }
  }
});

/** A random valid request with one of the framings of HTTP. Its body may look like a request. */
function validRequest(random: Random): string {
  const bodyParts = [
    '',
    listTransactions,
    `GET / RTSP/1.1\r\n${trustedHead}\r\n`,
    '0\r\n\r\n',
    '\r\n',
    '\n',
    'x'.repeat(random.below(9_000)),
  ];
  const body = random.pick(bodyParts) + random.pick(bodyParts) + random.bytes(random.below(40));
  const emptyLines = random.oneIn(4) ? '\r\n'.repeat(1 + random.below(3)) : '';
  const line = `${trustedHead}X-Filler: ${'y'.repeat(random.below(300))}\r\n`;
  if (random.oneIn(3))
    return `${emptyLines}${random.pick(['GET', 'HEAD'])} /v1/transactions?${random.below(99)} HTTP/1.1\r\n${line}\r\n`;
  const post = `${emptyLines}POST /v1/payouts HTTP/1.1\r\n${line}`;
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

t.test('every valid request is served, however it is framed and split', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: behindProxy });
  const seed = 20261120;
  const random = new Random(seed);
  const end = listTransactions.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
  for (let turn = 0; turn < 120; turn += 1) {
    const requests = Array.from({ length: 1 + random.below(6) }, () => validRequest(random));
    let rest = requests.join('') + end;
    const parts: string[] = [];
    while (rest.length > 0 && parts.length < 40) {
      const size = random.pick([1, 2, 1 + random.below(60), 1 + random.below(20_000)]);
      parts.push(rest.slice(0, size));
      rest = rest.slice(size);
    }
    const expected = [...requests, end].map(() => '200');
    for (const { over, open } of listenersOf(gateway)) {
      const received = await sendParts(open(), [...parts, rest]);
      t.same(statusesOf(received), expected, `${over}: seed ${seed}, turn ${turn}`);
    }
  }
});

// A service may respond without reading the request body. On a persistent connection, the service then parses the body as
// the next request. If the body is half a request head, the next merchant's request completes it, with that merchant's
// identity.

const keys = ['svc_live_merchantZero', 'svc_live_merchantOne', liveKey] as const;
const merchants = ['m_0', 'm_1', 'm_2'] as const;

interface Seen {
  readonly line: string;
  readonly merchants: readonly string[];
  readonly connection: string;
}

/** Starts a service that responds to each head with the merchant's id, and parses a body as the next request. */
async function startCareless(t: Teardown): Promise<{ url: string; seen: Seen[]; sockets: Socket[] }> {
  const seen: Seen[] = [];
  const sockets: Socket[] = [];
  const url = await startBareUpstream(t, (socket) => {
    let text = '';
    sockets.push(socket);
    socket
      .on('error', () => undefined)
      .on('data', (bytes) => {
        text += bytes.toString('latin1');
        for (let end = text.indexOf('\r\n\r\n'); end >= 0; end = text.indexOf('\r\n\r\n')) {
          const head = text.slice(0, end);
          text = text.slice(end + 4);
          const named = [...head.matchAll(/^x-merchant-id: (\S+)/gim)].map(([, id = '']) => id);
          const [line = ''] = head.split('\r\n');
          seen.push({ line, merchants: named, connection: /^connection: (\S+)/im.exec(head)?.[1] ?? '' });
          const body = named.join();
          socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
        }
      });
  });
  return { url, seen, sockets };
}

async function startGateway(t: Teardown, url: string, options: object = {}): Promise<GatewayUnderTest> {
  const records = Object.assign(
    {},
    ...keys.map((key, index) => recordsOf(key, { key: { keyId: `key_${index}`, merchantId: merchants[index] ?? '' } })),
  ) as ReturnType<typeof recordsOf>;
  const upstream = { url, ...options };
  return startTestGateway(t, {
    records,
    config: {
      trustedProxies: ['127.0.0.1'],
      upstreams: { transactions: upstream, payouts: upstream, customers: upstream },
    },
  });
}

interface Ask {
  readonly key: string;
  readonly method?: string;
  readonly path?: string;
  readonly body?: string;
  readonly chunked?: boolean;
}

/** Returns a function that sends a request on persistent connections and resolves with the body of the response. */
function clientOf(t: Teardown, { http: port }: GatewayUnderTest): (request: Ask) => Promise<string> {
  const agent = new http.Agent({ keepAlive: true });
  t.teardown(() => {
    agent.destroy();
  });
  return ({ key, method = 'GET', path = '/v1/transactions', body, chunked = false }) =>
    new Promise((resolve, reject) => {
      const framing = body === undefined || chunked ? {} : { 'content-length': Buffer.byteLength(body) };
      const headers = { 'x-api-key': key, 'x-forwarded-proto': 'https', ...framing };
      const request = http.request({ agent, port, host: '127.0.0.1', method, path, headers }, (response) => {
        let text = '';
        response.setEncoding('latin1').on('data', (part: string) => (text += part));
        response.on('end', () => {
          resolve(text);
        });
      });
      request.on('error', reject);
      if (chunked) request.flushHeaders();
      request.end(body);
    });
}

/** Bodies that are half a request head. They cause no stray response that would reveal the attack. */
const halfHeads = [
  'POST /payouts?to=attacker HTTP/1.1\r\nx-ignore: ',
  'POST /payouts?to=attacker HTTP/1.1\r\n',
  'GET /payouts?to=attacker',
];

async function countWrongResponses(
  t: Test,
  gateway: GatewayUnderTest,
  { count, bodies, chunked = false }: { count: number; bodies: readonly string[]; chunked?: boolean },
): Promise<number> {
  const ask = clientOf(t, gateway);
  let wrong = 0;
  for (let turn = 0; turn < count; turn += 1) {
    const body = bodies[turn % bodies.length] ?? '';
    const path = '/v1/payouts';
    await ask({ key: keys[0], method: 'POST', path, body, chunked });
    const other = 1 + (turn % 2);
    const response = await ask({ key: keys[other] ?? '', path });
    if (response !== merchants[other]) wrong += 1;
  }
  return wrong;
}

t.test('request smuggling: an unread body never becomes part of another merchant’s request', async (t) => {
  const service = await startCareless(t);
  const gateway = await startGateway(t, service.url);
  t.equal(await countWrongResponses(t, gateway, { count: 1_000, bodies: halfHeads }), 0);
  const mixed = service.seen.filter(({ line, merchants }) => line.includes('attacker') && merchants.join() !== 'm_0');
  t.same(mixed, [], 'each such request has the identity of the merchant that sent it');
  t.ok(
    service.seen.some(({ line }) => line.includes('attacker')),
    'the service parsed bodies as requests',
  );
  t.same(gateway.unsolicited, [], 'no stray byte revealed the attack');
});

t.test('with readsBodies set, merchants share an upstream connection', async (t) => {
  const service = await startCareless(t);
  const gateway = await startGateway(t, service.url, { readsBodies: true });
  const ask = clientOf(t, gateway);
  for (const key of keys) {
    await ask({ key, method: 'POST', path: '/v1/payouts', body: '\r\n' });
    await wait(110);
  }
  t.equal(service.sockets.length, 1);
});

t.test('request smuggling: whole requests in unread bodies reach no other merchant and are detected', async (t) => {
  const service = await startCareless(t);
  const forged = 'POST /payouts?to=attacker HTTP/1.1\r\nx-merchant-id: m_2\r\n\r\n';
  for (const chunked of [false, true]) {
    const gateway = await startGateway(t, service.url);
    t.equal(await countWrongResponses(t, gateway, { count: 100, bodies: [forged, ...halfHeads], chunked }), 0);
    t.ok(gateway.unsolicited.length > 0);
  }
});

t.test('a stray response affects at most one request, however late it arrives', async (t) => {
  for (const [late, latency, clients] of [
    [5, 0, 1],
    [20, 0, 1],
    [50, 0, 1],
    [5, 25, 1],
    [20, 25, 1],
    [50, 60, 1],
    [5, 10, 8],
    [20, 30, 8],
    [50, 60, 8],
  ] as const) {
    let isFirst = true;
    const url = await startBareUpstream(t, (socket) => {
      socket.setNoDelay(true).on('error', () => undefined);
      const respond = (body: string): void => {
        if (socket.writable) socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
      };
      socket.on('data', (bytes) => {
        const id = /^GET \/transactions\?(\d+) /.exec(bytes.toString('latin1'))?.[1] ?? '';
        const isStray = isFirst;
        isFirst = false;
        setTimeout(() => {
          respond(id);
          if (isStray) setTimeout(respond, late, 'stray');
        }, latency);
      });
    });
    const gateway = await startGateway(t, url);
    const ask = clientOf(t, gateway);
    let [wrong, count] = [0, 0];
    const client = async (): Promise<void> => {
      while (count < 60) {
        const id = String((count += 1));
        if ((await ask({ key: keys[count % 3] ?? '', path: `/v1/transactions?${id}` })) !== id) wrong += 1;
      }
    };
    await Promise.all(Array.from({ length: clients }, client));
    t.ok(wrong <= 1, `${late} ms late, responses after ${latency} ms, ${clients} clients: ${wrong} of ${count} wrong`);
  }
});

t.test(
  'an unsolicited byte closes all connections to that upstream; for a minute each carries one request',
  async (t) => {
    const service = await startCareless(t);
    const gateway = await startGateway(t, service.url);
    const ask = clientOf(t, gateway);
    await Promise.all(keys.map((key) => ask({ key })));
    const [first] = service.sockets;
    const closed = service.sockets.map((socket) => new Promise((resolve) => socket.once('close', resolve)));
    first?.write('x');
    await Promise.all(closed);
    t.same(gateway.unsolicited, ['transactions']);
    service.seen.length = 0;
    const before = service.sockets.length;
    for (const key of keys) await ask({ key });
    t.equal(service.sockets.length, before + keys.length);
    t.same(
      service.seen.map(({ connection }) => connection),
      ['close', 'close', 'close'],
    );
    const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
    t.match(text, 'gateway_upstream_unsolicited_bytes_total{upstream="transactions"} 1\n');
    t.match(
      text,
      'gateway_upstream_unsolicited_bytes_total{upstream="payouts"} 0\n',
      'connections to other upstreams are not affected',
    );
  },
);

t.test('requests in flight finish after an unsolicited byte, then their connections close', async (t) => {
  const sockets: Socket[] = [];
  let finish: () => void = () => undefined;
  let hold: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (hold = resolve));
  const url = await startBareUpstream(t, (socket) => {
    sockets.push(socket);
    const respond = (): void => void socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    socket
      .on('error', () => undefined)
      .on('data', (bytes) => {
        if (!bytes.includes('slow')) {
          respond();
          return;
        }
        finish = respond;
        hold();
      });
  });
  const gateway = await startGateway(t, url);
  const ask = clientOf(t, gateway);
  const slow = ask({ key: keys[1], path: '/v1/transactions?slow' });
  await held;
  t.equal(await ask({ key: keys[0] }), 'ok');
  t.equal(sockets.length, 2, 'the request in flight has a connection of its own');
  sockets[1]?.write('HTTP/1.1 500 Stray\r\n\r\n');
  while (gateway.unsolicited.length === 0) await wait(1);
  finish();
  t.equal(await slow, 'ok');
  for (const socket of sockets) if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
  t.same(gateway.unsolicited, ['transactions']);
});

t.test('a 408 on an idle upstream connection closes that connection only', async (t) => {
  const service = await startCareless(t);
  const gateway = await startGateway(t, service.url);
  const ask = clientOf(t, gateway);
  await Promise.all(keys.map((key) => ask({ key })));
  t.equal(service.sockets.length, 3);
  const [first] = service.sockets;
  first?.write('HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
  await new Promise((resolve) => first?.once('close', resolve));
  t.same(gateway.unsolicited, []);
  t.same(
    service.sockets.map(({ closed }) => closed),
    [true, false, false],
  );
});

t.test('idle connections bound to a merchant have their own limit; the least recently used closes first', async (t) => {
  const service = await startCareless(t);
  const gateway = await startGateway(t, service.url, { maxInFlight: 1, boundIdle: 2 });
  const ask = clientOf(t, gateway);
  for (const key of keys) t.ok(await ask({ key, method: 'POST', path: '/v1/payouts', body: '\r\n' }));
  t.equal(service.sockets.length, 3, 'idle bound connections do not count towards maxInFlight');
  const [first] = service.sockets;
  if (first?.closed === false) await new Promise((resolve) => first.once('close', resolve));
  t.same(
    service.sockets.map(({ closed }) => closed),
    [true, false, false],
  );
  const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(text, 'gateway_upstream_bound_idle_connections{upstream="payouts"} 2\n');
  await wait(110);
  t.equal(await ask({ key: keys[2] }), 'm_2');
});
