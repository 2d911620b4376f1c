import t from 'tap';
import type { ServerResponse } from 'node:http';
import { ask, connect, liveKey, requestBytes, startTestGateway, startUpstream } from '../http/harness.js';

// Node starts a pipelined request at once, and tells it nothing when its connection breaks while it waits: it was
// carried out without a line in the log, and its place upstream was never free again.
const key = ['x-api-key', liveKey] as const;
const get = requestBytes({ headers: [key] }).replace('Connection: close\r\n', '');
const post = requestBytes({ method: 'POST', path: '/v1/payouts', body: '{}', headers: [key] }).replace(
  'Connection: close\r\n',
  '',
);

t.test('a request that waits behind another one is not carried out when the connection breaks', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    config: { upstreams: { transactions: { url: upstream.url, maxInFlight: 3 }, payouts: { url: upstream.url } } },
  });
  for (let count = 0; count < 5; count += 1) {
    const arrived = new Promise<ServerResponse>((resolve) => {
      upstream.respond = (_request, response) => {
        resolve(response);
      };
    });
    const socket = connect(gateway.https, gateway.ca);
    socket.write(get + post + get);
    await arrived;
    socket.destroy();
    while (gateway.lines.length < (count + 1) * 3) await new Promise((resolve) => setImmediate(resolve));
  }
  t.same(
    upstream.seen.filter(({ method }) => method === 'POST'),
    [],
    'no payout was made that nobody could be told of',
  );
  t.equal(gateway.lines.length, 15, 'each request has its line');
  t.ok(gateway.lines.every((line) => (line.event as { code: string }).code === 'client_closed'));
  upstream.respond = (_request, response) => response.end('{}');
  for (let count = 0; count < 5; count += 1) {
    t.equal((await ask(gateway, { headers: [key] })).status, 200, 'and every place upstream is free again');
  }
});

t.test('pipelined requests are carried out one after the other, in their order', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  let running = 0;
  upstream.respond = (request, response) => {
    running += 1;
    t.equal(running, 1);
    setImmediate(() => {
      running -= 1;
      response.end(request.url);
    });
  };
  const socket = connect(gateway.https, gateway.ca);
  let received = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => (received += chunk));
  socket.write(get + post + get + requestBytes({ headers: [] }));
  await new Promise((resolve) => socket.once('end', resolve));
  t.same(
    [...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status),
    ['200', '200', '200', '401'],
  );
  t.same(
    upstream.seen.map(({ method }) => method),
    ['GET', 'POST', 'GET'],
  );
});

t.test('a client that sends requests without end and reads nothing is cut off', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  upstream.respond = () => undefined;
  const socket = connect(gateway.https, gateway.ca);
  socket.on('error', () => undefined);
  socket.write(get.repeat(100));
  await new Promise((resolve) => socket.once('close', resolve));
  t.ok(upstream.seen.length <= 1);
});
