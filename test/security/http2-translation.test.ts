import t from 'tap';
import { liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import { endStream, FrameConnection, headersFrames, requestFields } from '../http/http2-frames.js';

const key = ['x-api-key', liveKey] as const;

// HTTP/1.1's parser refuses a method that is not registered; HTTP/2 has no such list, and the framework answered it by
// itself: without a key, with an error of the program's own for a body, and without a line in the log.
t.test('a method that nobody knows is refused over HTTP/2 as over HTTP/1.1, and logged', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const connection = new FrameConnection(gateway.https, gateway.ca);
  const methods = ['get', 'Get', 'FOO', 'PRI', '*', 'x'.repeat(3000), `svc_live_${'x'.repeat(40)}`];
  let stream = -1;
  for (const method of methods) {
    for (const headers of [[], [['x-api-key', liveKey]]] as const) {
      stream += 2;
      connection.ask(stream, method, '/v1/transactions', headers);
      await connection.until(() => connection.isOver(stream));
      t.equal(connection.body(stream), '{"success":false,"message":"Malformed HTTP request","data":null}', method);
    }
  }
  t.same(
    gateway.lines.map((line) => (line.event as { code: string }).code),
    Array(2 * methods.length).fill('malformed_request'),
  );
  t.notMatch(JSON.stringify(gateway.lines), /x{3000}|svc_live_x/);
  connection.ask(stream + 2, 'TRACE', '/v1/transactions');
  await connection.until(() => connection.isOver(stream + 2));
  t.match(connection.body(stream + 2), 'API Key is required', 'one that is registered is judged as any other');
  t.same(upstream.seen, []);
  connection.socket.destroy();
});

// Envoy CVE-2023-27491, HAProxy CVE-2021-39240 to 39242, Apache httpd CVE-2021-33193: what HTTP/2 carries as a value is a
// line end or a blank in the HTTP/1.1 that is sent on.
t.test('nothing of an HTTP/2 request becomes a line of its own behind the gateway', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const line = ' HTTP/1.1\r\nHost: a\r\nx-merchant-id: forged\r\n\r\nGET /v1/payouts';
  type Fields = readonly (readonly [string, string])[];
  const without = (name: string, value: string): Fields =>
    requestFields('GET', '/v1/transactions', [key]).map(([n, v]) => [n, n === name ? value : v] as const);
  const rows: readonly Fields[] = [
    ...[`GET /v1/payouts${line}`, `GET${line}`, 'GET ', 'GE\r\nT'].map((method) => without(':method', method)),
    ...[line, ' /x', '\r\nx: y', '\0', '#/../payouts', '\\..\\payouts'].map((tail) =>
      without(':path', `/v1/transactions${tail}`),
    ),
    ...[`localhost${line}`, 'localhost/..', 'a@localhost', 'a,b', ''].map((host) => without(':authority', host)),
    ...['https://localhost/v1/payouts?', 'http', 'x\r\n'].map((scheme) => without(':scheme', scheme)),
    [...without('', ''), ['x', 'a\r\nx-merchant-id: forged']],
    [...without('', ''), ['x\r\nx-merchant-id', 'forged']],
    [...without('', ''), ['x: y\r\nx-merchant-id', 'forged']],
    [...without('', ''), ['cookie', 'a=b\r\nx-merchant-id: forged']],
  ];
  for (const fields of rows) {
    const connection = new FrameConnection(gateway.https, gateway.ca);
    connection.send(headersFrames(1, endStream, fields));
    await connection.until(() => connection.isOver(1) || connection.goaway() !== null);
    connection.socket.destroy();
  }
  t.ok(upstream.seen.every(({ method, url }) => method === 'GET' && url === '/transactions'));
  t.notMatch(JSON.stringify(upstream.seen.map(({ rawHeaders }) => rawHeaders)), 'forged');
  t.same(gateway.internalErrors, []);
});
