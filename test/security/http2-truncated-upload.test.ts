import t from 'tap';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { liveKey, startTestGateway } from '../http/harness.js';
import { FrameConnection, frame, headersFrames, requestFields, uint32 } from '../http/http2-frames.js';

// Node ends the body of an HTTP/2 request that is taken back as if all of it had come. Passed on, half a body would be
// a whole payout: without a content-length nobody behind could tell.
t.test('a body whose request is taken back or whose connection breaks is never whole to the upstream', async (t) => {
  const bodies: { complete: boolean; text: string }[] = [];
  let arrived = (): void => undefined;
  const server = http.createServer((request, response) => {
    let text = '';
    request.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      arrived();
    });
    request.on('error', () => undefined);
    request.on('close', () => bodies.push({ complete: request.complete, text }));
    request.on('end', () => response.end('{}'));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const gateway = await startTestGateway(t, { upstreamUrl: `http://127.0.0.1:${port}` });
  const endings: readonly [string, (connection: FrameConnection) => void][] = [
    ['RST_STREAM CANCEL', (connection) => { connection.send(frame('rstStream', 0, 1, uint32(8))); }], // prettier-ignore
    ['RST_STREAM NO_ERROR', (connection) => { connection.send(frame('rstStream', 0, 1, uint32(0))); }], // prettier-ignore
    ['GOAWAY', (connection) => { connection.socket.end(frame('goaway', 0, 0, Buffer.alloc(8))); }], // prettier-ignore
    ['the end of the connection', (connection) => { connection.socket.end(); }], // prettier-ignore
    ['its reset', (connection) => { connection.socket.destroy(); }], // prettier-ignore
  ];
  for (const [count, [name, end]] of endings.entries()) {
    const half = new Promise<void>((resolve) => (arrived = resolve));
    const connection = new FrameConnection(gateway.https, gateway.ca);
    connection.send(headersFrames(1, 0, requestFields('POST', '/v1/payouts', [['x-api-key', liveKey]])));
    connection.send(frame('data', 0, 1, Buffer.from('{"amount":100')));
    await half;
    end(connection);
    while (bodies.length <= count || gateway.lines.length <= count)
      await new Promise((resolve) => setImmediate(resolve));
    connection.socket.destroy();
    t.same(bodies[count], { complete: false, text: '{"amount":100' }, name);
    t.match(gateway.lines[count], { event: { code: 'client_closed' } }, name);
  }
});
