import { once } from 'node:events';
import type { OutgoingHttpHeaders } from 'node:http2';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { connectHttp2, fetchHttp2 } from './http2-client.js';
import type { Http2Answer } from './http2-client.js';
import { endStream, frame, FrameConnection, headersFrames, requestFields, uint32 } from './http2-frames.js';
import { ask, liveKey, startBareUpstream, startTestGateway, startUpstream } from './harness.js';
import type { GatewayUnderTest } from './harness.js';

const key = ['x-api-key', liveKey] as const;
const keyed = { 'x-api-key': liveKey };

t.test('HTTP/2 is agreed on by ALPN and is decided, proxied and logged as HTTP/1.1 is', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const session = connectHttp2(t, gateway);
  const everyByte = Buffer.from(Array.from({ length: 256 }, (_, index) => index)).toString('latin1');
  const rows: readonly [OutgoingHttpHeaders, string, string, number][] = [
    [{ ':path': '/v1/transactions?a=%2F&b', ...keyed }, '', '/transactions?a=%2F&b', 200],
    [{ ':method': 'HEAD', ':path': '/v1/transactions', ...keyed }, '', '/transactions', 200],
    [{ ':method': 'POST', ':path': '/v1/payouts', ...keyed }, everyByte, '/payouts', 200],
    [{ ':method': 'POST', ':path': '/v1/payouts', 'content-length': 256, ...keyed }, everyByte, '/payouts', 200],
    [{ ':method': 'POST', ':path': '/v1/payouts', ...keyed }, 'x'.repeat(300_000), '/payouts', 200],
    [{ ':method': 'DELETE', ':path': '/v1/dev/customers/1', ...keyed }, '', '/dev/customers/1', 200],
    [{ ':path': '/v1/transactions' }, '', '', 401],
    [{ ':path': '/v1/nowhere', ...keyed }, '', '', 404],
    [{ ':path': '/v1//payouts', ...keyed }, '', '', 400],
    [{ ':method': 'TRACE', ':path': '/v1/payouts', ...keyed }, '', '', 405],
    [{ ':method': 'POST', ':path': '/v1/payouts', 'x-api-key': 'svc_live_wrong' }, 'x'.repeat(300_000), '', 401],
  ];
  for (const [count, [headers, body, url, status]] of rows.entries()) {
    upstream.seen.length = 0;
    const name = `${String(headers[':method'] ?? 'GET')} ${String(headers[':path'])}`;
    const answer = await fetchHttp2(session, headers, body);
    t.equal(answer.headers[':status'], status, name);
    t.same(
      upstream.seen.map((seen) => ({ url: seen.url, body: seen.body.toString('latin1') })),
      url === '' ? [] : [{ url, body }],
      name,
    );
    for (const hop of ['connection', 'keep-alive', 'transfer-encoding', 'upgrade']) t.notOk(hop in answer.headers, hop);
    if (status !== 200) t.match(answer.body, /^\{"success":false,"message":"[^"]+","data":null\}$/, name);
    else if (headers[':method'] !== 'HEAD') t.equal(answer.body, '{"success":true,"message":"OK","data":[]}');
    while (gateway.lines.length <= count) await new Promise((resolve) => setImmediate(resolve));
    t.match(gateway.lines[count], {
      http: { response: { status_code: status }, request: { id: answer.headers['x-request-id'] } },
      tls: { version: 'TLSv1.3' },
      source: { ip: '127.0.0.1' },
      event: { outcome: status === 200 ? 'success' : 'failure' },
    });
  }
  t.equal(gateway.lines.length, rows.length, 'one line a request');
  t.equal((await ask(gateway, { headers: [key] })).status, 200, 'and HTTP/1.1 is served beside it');
  t.same(gateway.internalErrors, []);
});

t.test('the upstream is told over HTTP/2 what it is told over HTTP/1.1', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const connection = new FrameConnection(gateway.https, gateway.ca);
  connection.ask(1, 'GET', '/v1/transactions', [
    key,
    ['x-merchant-id', 'evil'],
    ['x_merchant_id', 'evil'],
    ['x-forwarded-for', '198.51.100.9'],
    ['cookie', 'a=1'],
    ['x-kept', 'one'],
    ['cookie', 'b=2'],
    ['te', 'trailers'],
    ['host', 'LOCALHOST'],
  ]);
  await connection.until(() => connection.isOver(1));
  connection.socket.destroy();
  const { headers = {}, rawHeaders = [] } = upstream.seen[0] ?? {};
  t.match(headers, {
    'x-merchant-id': 'm_1',
    'x-forwarded-for': '127.0.0.1',
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'localhost',
    'x-kept': 'one',
    cookie: 'a=1; b=2',
    host: `127.0.0.1:${upstream.port}`,
  });
  t.notOk('te' in headers);
  t.equal(rawHeaders.filter((one) => one.toLowerCase() === 'cookie').length, 1, 'crumbs are one header');
  t.notMatch(JSON.stringify(upstream.seen), /evil|198\.51/);
});

/** What a request with these fields comes to: the status of its answer, or `reset <code>`, or `goaway <code>`. */
async function outcomeOf(gateway: GatewayUnderTest, fields: readonly (readonly [string, string])[]): Promise<string> {
  const connection = new FrameConnection(gateway.https, gateway.ca);
  connection.send(headersFrames(1, endStream, fields));
  await connection.until(() => connection.isOver(1) || connection.goaway() !== null);
  connection.socket.destroy();
  const goaway = connection.goaway();
  if (goaway !== null && goaway !== 0) return `goaway ${goaway}`;
  const reset = connection.reset(1);
  return reset !== null && reset !== 0 ? `reset ${reset}` : connection.body(1);
}

t.test('what is malformed as HTTP/2 never becomes a request, and what is only wrong is told so', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const good = (more: readonly (readonly [string, string])[]) =>
    requestFields('GET', '/v1/transactions', [key, ...more]);
  const protocolError = /^(?:reset|goaway) 1$/;
  const rows: readonly [string, readonly (readonly [string, string])[], RegExp][] = [
    ['nothing wrong', good([]), /"success":true/],
    ['connection', good([['connection', 'close']]), protocolError],
    ['connection that names a header', good([['connection', 'x-api-key']]), protocolError],
    ['keep-alive', good([['keep-alive', 'timeout=5']]), protocolError],
    ['proxy-connection', good([['proxy-connection', 'close']]), protocolError],
    ['transfer-encoding', good([['transfer-encoding', 'chunked']]), protocolError],
    ['upgrade', good([['upgrade', 'h2c']]), protocolError],
    ['te other than trailers', good([['te', 'gzip']]), protocolError],
    ['a name in upper case', good([['X-Upper', '1']]), protocolError],
    ['a name with a blank', good([['x y', '1']]), /^(?:reset|goaway) 1$|"success":true/],
    ['two lengths', good([['content-length', '0'], ['content-length', '0']]), protocolError], // prettier-ignore
    ['a length without a body', good([['content-length', '3']]), protocolError],
    ['two methods', [[':method', 'POST'], ...good([])], protocolError],
    ['two paths', [[':path', '/v1/payouts'], ...good([])], protocolError],
    ['two authorities', [[':authority', 'localhost'], ...good([])], protocolError],
    ['a pseudo-header behind a header', [...good([]), [':path', '/v1/payouts']], protocolError],
    ['a pseudo-header of answers', [[':status', '200'], ...good([])], protocolError],
    ['an unknown pseudo-header', [[':protocol', 'websocket'], ...good([])], protocolError],
    ['no path', good([]).filter(([name]) => name !== ':path'), protocolError],
    ['an empty path', good([]).map(([n, v]) => [n, n === ':path' ? '' : v] as const), protocolError],
    ['no method', good([]).filter(([name]) => name !== ':method'), protocolError],
    ['no authority', good([]).filter(([name]) => name !== ':authority'), protocolError],
    ['a Host instead', good([['host', 'localhost']]).filter(([name]) => name !== ':authority'), /"success":true/],
    ['another Host', good([['host', 'other']]), /Invalid Host header/],
    ['two Hosts', good([['host', 'localhost'], ['host', 'other']]), protocolError], // prettier-ignore
    [
      'userinfo',
      good([]).map(([n, v]) => [n, n === ':authority' ? 'a@localhost' : v] as const),
      /Invalid Host header|1$/,
    ],
    ['two keys', good([key]), /Invalid API key format/],
    ['two keys, one empty', good([['x-api-key', '']]), /Invalid API key format/],
    [
      'a path that is a URL, under a scheme that nghttp2 does not know',
      good([]).map(([n, v]) => [n, n === ':path' ? 'http://a/v1/payouts' : n === ':scheme' ? 'x' : v] as const),
      /Malformed HTTP request/,
    ],
    [
      'bytes beyond ASCII in the query, which HTTP/1.1 has not',
      good([]).map(([n, v]) => [n, n === ':path' ? '/v1/transactions?q=\xe9' : v] as const),
      /Malformed HTTP request/,
    ],
    ['CONNECT', [[':method', 'CONNECT'], [':authority', 'localhost:443'], key], /"message":"Not found"|Invalid request path/], // prettier-ignore
    ['CONNECT without a key', [[':method', 'CONNECT'], [':authority', 'localhost:443']], /API Key is required/], // prettier-ignore
    ['extended CONNECT', [[':method', 'CONNECT'], [':protocol', 'websocket'], ...good([]).slice(1)], protocolError],
    ['headers above the limit', good([['x-filler', 'y'.repeat(17_000)]]), /Request header fields too large/],
    ['headers far above it', good([['x-filler', 'y'.repeat(60_000)]]), /Request header fields too large/],
    ['three hundred headers', good(Array.from({ length: 300 }, () => ['x', 'y'] as const)), /"success":true/],
  ];
  for (const [name, fields, expected] of rows) t.match(await outcomeOf(gateway, fields), expected, name);
  const accepted = rows.filter(([, , expected]) => expected.source.includes('"success":true')).length;
  t.ok(upstream.seen.length <= accepted && upstream.seen.every(({ url }) => url === '/transactions'));
  t.same(gateway.internalErrors, []);
});

t.test(
  'bodies keep their limits over HTTP/2: too long, too slow, refused before they came, asked for first',
  async (t) => {
    const upstream = await startUpstream(t);
    const gateway = await startTestGateway(t, {
      upstreamUrl: upstream.url,
      config: { limits: { bodyBytes: 10_000, requestTimeoutSeconds: 1, headersTimeoutSeconds: 1 } },
    });
    const session = connectHttp2(t, gateway);
    const post = { ':method': 'POST', ':path': '/v1/payouts', ...keyed };
    const long = 'x'.repeat(200_000);
    t.equal((await fetchHttp2(session, { ...post, 'content-length': long.length }, long)).headers[':status'], 413);
    t.equal((await fetchHttp2(session, post, long)).headers[':status'], 413, 'counted where no length is told');
    t.same(upstream.seen, []);

    const slow = session.request(post, { endStream: false });
    slow.write('{');
    const [late] = (await once(slow, 'response')) as [Http2Answer['headers']];
    t.equal(late[':status'], 408);
    slow.resume();
    if (!slow.closed) await once(slow, 'close');

    const refused = session.request({ ...post, 'x-api-key': 'svc_live_wrong' }, { endStream: false });
    refused.write('{');
    refused.resume();
    const [early] = (await once(refused, 'response')) as [Http2Answer['headers']];
    t.equal(early[':status'], 401);
    if (!refused.closed) await once(refused, 'close');
    t.equal(refused.rstCode, 0, 'the rest of a body that nobody wants need not be sent');

    const asking = session.request({ ...post, expect: '100-continue' }, { endStream: false });
    await once(asking, 'continue');
    asking.end('{}');
    const [answer] = (await once(asking, 'response')) as [Http2Answer['headers']];
    t.equal(answer[':status'], 200);
    t.equal(upstream.seen[0]?.body.toString(), '{}');
    t.notOk('expect' in (upstream.seen[0]?.headers ?? {}));
    asking.resume();
    t.same(gateway.internalErrors, []);
  },
);

t.test('an answer that breaks off at the upstream is a stream that fails, not one that ends', async (t) => {
  const upstream = await startUpstream(t);
  upstream.respond = (_request, response) => {
    response.write('{"half":', () => response.destroy());
  };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const connection = new FrameConnection(gateway.https, gateway.ca);
  connection.ask(1, 'GET', '/v1/transactions', [key]);
  await connection.until(() => connection.isOver(1));
  t.equal(connection.reset(1), 2, 'INTERNAL_ERROR');
  while (gateway.lines.length === 0) await new Promise((resolve) => setImmediate(resolve));
  t.match(gateway.lines, [{ event: { code: 'upstream_failed' } }]);
  connection.ask(3, 'GET', '/v1/nowhere', [key]);
  await connection.until(() => connection.isOver(3));
  t.match(connection.body(3), 'Not found', 'and the connection goes on');
  connection.socket.destroy();
});

t.test('a drain says so by GOAWAY, answers what was asked, and then ends the connection', async (t) => {
  const upstream = await startUpstream(t);
  const arrived = new Promise<() => void>((resolve) => {
    upstream.respond = (_request, response) => {
      resolve(() => response.end('{}'));
    };
  });
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits: { drainTimeoutSeconds: 30 } },
  });
  const busy = new FrameConnection(gateway.https, gateway.ca);
  const idle = new FrameConnection(gateway.https, gateway.ca);
  await idle.until(() => idle.of('settings').length > 0);
  busy.ask(1, 'GET', '/v1/transactions', [key]);
  const answer = await arrived;
  const drained = gateway.drain();
  await idle.untilClosed();
  await busy.until(() => busy.goaway() !== null);
  t.equal(busy.goaway(), 0);
  t.equal(idle.goaway(), 0);
  answer();
  await busy.untilClosed();
  t.equal(busy.body(1), '{}');
  await drained;
  t.match(gateway.lines, [{ event: { code: 'accepted' } }]);
});

t.test('a connection on which nothing is asked is closed, whatever else it says', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits: { headersTimeoutSeconds: 1, keepAliveTimeoutSeconds: 1 } },
  });
  const silent = new FrameConnection(gateway.https, gateway.ca);
  const unfinished = new FrameConnection(gateway.https, gateway.ca);
  unfinished.send(headersFrames(1, 0, requestFields('GET', '/v1/x')).fill(1, 4, 5)); // END_STREAM, but not END_HEADERS
  const used = new FrameConnection(gateway.https, gateway.ca);
  used.ask(1, 'GET', '/v1/transactions', [key]);
  await used.until(() => used.isOver(1));
  const pinging = setInterval(() => {
    for (const one of [silent, used]) one.send(frame('ping', 0, 0, Buffer.alloc(8)));
  }, 100);
  t.teardown(() => {
    clearInterval(pinging);
  });
  await Promise.all([silent.untilClosed(), unfinished.untilClosed(), used.untilClosed()]);
  t.pass('all are closed');
});

t.test('an answer has its end before anything else is said of its stream', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const connection = new FrameConnection(gateway.https, gateway.ca);
  const wrong = ['x-api-key', 'svc_live_wrong'] as const;
  connection.ask(1, 'GET', '/v1/transactions', [key]);
  connection.ask(3, 'HEAD', '/v1/transactions', [key]);
  connection.ask(5, 'GET', '/v1/transactions', [wrong]);
  connection.send(headersFrames(7, 0, requestFields('POST', '/v1/payouts', [wrong])));
  connection.send(frame('data', 0, 7, Buffer.from('{')));
  connection.send(headersFrames(9, 0, requestFields('POST', '/v1/payouts', [key])));
  connection.send(frame('data', endStream, 9, Buffer.from('{}')));
  for (const stream of [1, 3, 5, 7, 9]) {
    await connection.until(() => connection.isOver(stream));
    const last = connection.frames.filter((one) => one.stream === stream && one.type !== 'windowUpdate');
    const ends = last.map(({ type, flags }) => type !== 'rstStream' && (flags & endStream) !== 0);
    t.ok(ends.includes(true), `stream ${stream}: ${last.map(({ type, flags }) => `${type} ${flags}`).join(', ')}`);
    if (stream !== 7) t.equal(connection.reset(stream), null, 'and is not reset');
  }
  await connection.until(() => connection.reset(7) !== null);
  t.equal(connection.reset(7), 0, 'NO_ERROR: the rest of a refused body need not be sent');
  connection.socket.destroy();
});

t.test('a client that takes nothing for some seconds is slow, and gets the whole of its answer', async (t) => {
  const upstream = await startUpstream(t);
  const size = 20_000_000;
  upstream.respond = (_request, response) => response.end(Buffer.alloc(size));
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  // Windows as wide as can be, so that it is TCP alone that holds the answer up.
  const initialWindowSize = Buffer.concat([Buffer.from([0, 4]), uint32(2 ** 30)]);
  const connection = new FrameConnection(gateway.https, gateway.ca, initialWindowSize);
  connection.send(frame('windowUpdate', 0, 0, uint32(2 ** 30)));
  connection.ask(1, 'GET', '/v1/transactions', [key]);
  await connection.until(() => connection.of('data', 1).length > 0);
  connection.socket.pause();
  await wait(5_000); // one that is broken is closed by then
  connection.socket.resume();
  await connection.until(() => connection.isOver(1));
  t.equal(connection.body(1).length, size);
  connection.socket.destroy();
});

t.test('what a service says twice in the same words is said once, where Node takes it no other way', async (t) => {
  const names = [
    ...['access-control-allow-credentials', 'access-control-max-age', 'access-control-request-method', 'age'],
    ...['authorization', 'content-encoding', 'content-language', 'content-location', 'content-md5', 'content-range'],
    ...['content-type', 'date', 'dnt', 'etag', 'expires', 'from', 'host', 'if-match', 'if-modified-since'],
    ...['if-none-match', 'if-range', 'if-unmodified-since', 'last-modified', 'location', 'max-forwards', 'range'],
    ...['referer', 'retry-after', 'tk', 'upgrade-insecure-requests', 'user-agent', 'x-content-type-options'],
  ];
  let name = '';
  const upstreamUrl = await startBareUpstream(t, (socket) => {
    socket.on('data', () =>
      socket.write(`HTTP/1.1 200 OK\r\n${`${name}: 1\r\n`.repeat(2)}Content-Length: 2\r\n\r\n{}`),
    );
  });
  const gateway = await startTestGateway(t, { upstreamUrl });
  const session = connectHttp2(t, gateway);
  for (name of names) {
    const { headers } = await fetchHttp2(session, { ':path': '/v1/transactions', ...keyed });
    t.equal(headers[':status'], 200, name);
  }
});
