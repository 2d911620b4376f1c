import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import { endStream, frame, FrameConnection, headersFrames, requestFields } from '../http/http2-frames.js';

const upTo = (most: number): number => Math.floor(Math.random() * most);

// A client that reset its connection while answers to it were being written left it open for good in a process that neither
// read nor wrote nor closed it: a place among the connections, and requests that a service had answered and that never came
// into the access log.
t.test('every request is over soon when its client has reset the connection, at whatever moment', async (t) => {
  const upstream = await startUpstream(t);
  upstream.respond = (_request, response) => {
    setTimeout(() => response.end('{}'), upTo(20));
  };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const get = requestFields('GET', '/v1/transactions', [['x-api-key', liveKey]]);
  const post = requestFields('POST', '/v1/payouts');
  const askAndReset = async (): Promise<void> => {
    const connection = new FrameConnection(gateway.https, gateway.ca);
    await wait(20);
    for (let stream = 1; stream < 80; stream += 2) {
      // A body that goes on behind its refusal has the gateway write while it reads.
      if (upTo(2) === 0) connection.send(headersFrames(stream, endStream, get));
      else connection.send(headersFrames(stream, 0, post), frame('data', 0, stream, Buffer.from('{}')));
      if (upTo(8) === 0) await wait(1);
    }
    await wait(upTo(60));
    connection.socket.destroy();
  };
  for (let count = 0; count < 60; count += 1) await askAndReset();

  const missing = (): number => {
    const logged = new Set(gateway.lines.map(({ http }) => (http as { request: { id: string } }).request.id));
    return upstream.seen.filter(({ headers }) => !logged.has(String(headers['x-request-id']))).length;
  };
  const end = Date.now() + 10_000;
  while (missing() > 0 && Date.now() < end) await wait(50);
  t.equal(missing(), 0, `of ${upstream.seen.length} requests that reached the service`);
  t.ok(upstream.seen.length > 100);
});
