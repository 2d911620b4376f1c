import t from 'tap';
import type { ServerResponse } from 'node:http';
import { ask, connect, liveKey, requestBytes, startTestGateway, startUpstream } from '../edge/harness.js';

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

// More requests than may wait had the connection destroyed: the payout was made, and its response thrown away.
t.test('the response of a payout is delivered, however much is pipelined behind it', async (t) => {
  const upstream = await startUpstream(t);
  let latency = 0;
  upstream.respond = (_request, response) => {
    setTimeout(() => {
      response.writeHead(201, { 'content-type': 'application/json' }).end('{"success":true}');
    }, latency);
  };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { trustedProxies: ['127.0.0.1'] } });
  const secured = (bytes: string): string => bytes.replace('Host:', 'X-Forwarded-Proto: https\r\nHost:');
  for (const behind of [17, 18, 40, 400]) {
    for (const [port, ca] of [
      [gateway.https, gateway.ca],
      [gateway.http, null],
    ] as const) {
      for (latency of [0, 5, 20]) {
        upstream.seen.length = 0;
        const socket = connect(port, ca);
        let received = '';
        socket.setEncoding('latin1').on('data', (chunk: string) => (received += chunk));
        socket.on('error', (error) => (received += String(error)));
        socket.write(secured(post) + secured(get).repeat(behind));
        // Later packets meet a connection that is about to close.
        setTimeout(() => socket.write(secured(get).repeat(5)), 2);
        await new Promise((resolve) => socket.once('close', resolve));
        const statuses = [...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
        t.same(statuses, ['201'], `${behind} behind, after ${latency} ms`);
        t.match(received, /\r\nconnection: close\r\n/i);
        t.same(
          upstream.seen.map(({ method }) => method),
          ['POST'],
          'nothing that waits is carried out',
        );
      }
    }
  }
});

t.test('a client that pipelines without end is cut off when its response is out', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  upstream.respond = (_request, response) => setTimeout(() => response.end('{}'), 20);
  const socket = connect(gateway.https, gateway.ca).on('error', () => undefined);
  const flood = setInterval(() => socket.writable && socket.write(get.repeat(100)), 1);
  await new Promise((resolve) => socket.once('close', resolve));
  clearInterval(flood);
  t.equal(upstream.seen.length, 1);
});
