import t from 'tap';
import { liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import { FrameConnection } from '../http/http2-frames.js';

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
