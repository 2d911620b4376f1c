import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { connect, liveKey, requestBytes, startTestGateway, startUpstream } from '../edge/harness.js';

// On a thread of its own: the reset has to come while the gateway ends the handshake.
const askAndReset = `
  const { once } = require('node:events');
  const { port, ca, connections } = require('node:worker_threads').workerData;
  const start = async (count) => {
    const tcp = require('node:net').connect(port, '127.0.0.1');
    const tls = require('node:tls').connect({ socket: tcp, ca, servername: 'localhost' });
    tls.on('error', () => undefined).once('secureConnect', () => {
      tls.write('GET /v1/transactions HTTP/1.1\\r\\nHost: localhost\\r\\nx-api-key: svc_live_unknown' + count + '\\r\\n\\r\\n');
      setTimeout(() => tcp.resetAndDestroy(), count % 4);
    });
    await once(tcp, 'close');
  };
  (async () => {
    for (let count = 0; count < connections; count += 1) await start(count);
  })();
`;

// A client that reset its connection as the tickets of its TLS session were being written was never heard of: the answer to
// what it had asked stayed in TLS for a minute, and with it the connection and the line in the access log. A drain waited.
t.test('every request is over soon when its client has reset the connection as TLS began', async (t) => {
  let asked = 0;
  const gateway = await startTestGateway(t, {
    keyStore: {
      find: () => {
        asked += 1;
        return { credential: null, source: 'store', ageMilliseconds: 0 };
      },
      unavailableReason: () => null,
      close: () => Promise.resolve(),
    },
  });
  const workerData = { port: gateway.https, ca: gateway.ca, connections: 300 };
  await once(new Worker(askAndReset, { eval: true, execArgv: [], workerData }), 'exit');

  const end = Date.now() + 10_000;
  while (gateway.lines.length < asked && Date.now() < end) await wait(50);
  t.equal(gateway.lines.length, asked, 'each request that was decided has its line');
  t.ok(asked > 50);
});

t.test('a caller who takes nothing of its answer for some seconds is not taken for such a client', async (t) => {
  const upstream = await startUpstream(t);
  const size = 30_000_000;
  upstream.respond = (_request, response) => response.end(Buffer.alloc(size, 0x61));
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const socket = connect(gateway.https, gateway.ca);
  let bytes = 0;
  socket.write(requestBytes({ headers: [['x-api-key', liveKey]] }));
  await once(socket, 'readable');
  await wait(3_500);
  socket.on('data', (chunk: Buffer) => (bytes += chunk.length)).resume();
  await once(socket, 'close');
  t.ok(bytes > size, `${bytes} bytes`);
});
