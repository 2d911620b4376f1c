import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import {
  endStream,
  frame,
  FrameConnection,
  headersFrames,
  preface,
  requestFields,
  uint32,
} from '../http/http2-frames.js';
import { leftOpen } from '../http/left-open.js';

/** Enough for what is closed within seconds, less than any limit that would end it. */
const soonMilliseconds = 8_000;
/** More than all buffers on the way. */
const size = 30_000_000;
/** The settings of a client that takes as much as there is. */
const widest = Buffer.concat([Buffer.from([0, 4]), uint32(2 ** 31 - 1)]);
const limits = {
  headersTimeoutSeconds: 1,
  requestTimeoutSeconds: 1,
  keepAliveTimeoutSeconds: 1,
  answerTimeoutSeconds: 1,
};

// On a thread of its own: the reset has to come while the gateway ends the handshake.
const askAndReset = `
  const { once } = require('node:events');
  const { port, ca, connections, parts } = require('node:worker_threads').workerData;
  const start = async (count) => {
    const tcp = require('node:net').connect(port, '127.0.0.1');
    const tls = require('node:tls').connect({ socket: tcp, ca, servername: 'localhost', ALPNProtocols: ['h2'] });
    tls.on('error', () => undefined).once('secureConnect', async () => {
      for (const part of parts) {
        tls.write(part);
        await new Promise((resolve) => setImmediate(resolve));
      }
      setTimeout(() => tcp.resetAndDestroy(), count % 4);
    });
    await once(tcp, 'close');
  };
  (async () => {
    for (let count = 0; count < connections; count += 1) await start(count);
  })();
`;

// The session of such a client was ended, and its connection was not: it kept its place among `limits.connections` and
// those of its address for as long as the process ran.
t.test('no connection is kept whose client has reset it as HTTP/2 began', async (t) => {
  const gateway = await startTestGateway(t);
  const refused = requestFields('GET', '/v1/transactions');
  const requests = Array.from({ length: 10 }, (_, index) => headersFrames(1 + 2 * index, endStream, refused));
  const parts = [Buffer.concat([preface, frame('settings', 0, 0)]), ...requests];
  const workerData = { port: gateway.https, ca: gateway.ca, connections: 300, parts };
  await once(new Worker(askAndReset, { eval: true, execArgv: [], workerData }), 'exit');
  t.equal(await leftOpen([gateway], soonMilliseconds), 0);
  t.ok(gateway.lines.length > 50, `${gateway.lines.length} requests`);
});

// An ended session waited for what was being written; who read nothing kept its connection as long as it liked.
t.test('no connection is kept whose client takes nothing of its answer', async (t) => {
  const upstream = await startUpstream(t);
  upstream.respond = (_request, response) => response.end(Buffer.alloc(size, 0x61));
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { limits } });
  const connection = new FrameConnection(gateway.https, gateway.ca, widest);
  t.teardown(() => connection.socket.destroy());
  connection.send(frame('windowUpdate', 0, 0, uint32(2 ** 31 - 1 - 65_535)));
  connection.ask(1, 'GET', '/v1/transactions', [['x-api-key', liveKey]]);
  await connection.until(() => connection.of('data').length > 0);
  connection.socket.pause();
  t.equal(await leftOpen([gateway], soonMilliseconds), 0);
});

// Node ends its own side, and waits for the client's.
t.test('no connection is kept whose client does not close its side', async (t) => {
  const gateway = await startTestGateway(t, { config: { limits } });
  const connection = new FrameConnection(gateway.https, gateway.ca);
  t.teardown(() => connection.socket.destroy());
  await connection.until(() => connection.of('settings').length > 0);
  connection.socket.pause();
  t.equal(await leftOpen([gateway], soonMilliseconds), 0);
});

// Its bytes were out, and its end had no limit: it waited for a window of its own.
t.test('no answer is kept whose client lets all of it in but its end, and other requests go on', async (t) => {
  const upstream = await startUpstream(t);
  upstream.respond = (request, response) => {
    if (request.url?.endsWith('/slow') === true) {
      setTimeout(() => response.writeHead(204).end(), 4_000);
      return;
    }
    response.write('{');
    setTimeout(() => response.write('}'), 20);
    setTimeout(() => response.end(), 40);
  };
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits: { ...limits, answerTimeoutSeconds: 60 } },
  });
  const connection = new FrameConnection(gateway.https, gateway.ca, Buffer.concat([Buffer.from([0, 4]), uint32(2)]));
  t.teardown(() => connection.socket.destroy());
  connection.ask(1, 'GET', '/v1/transactions', [['x-api-key', liveKey]]);
  connection.ask(3, 'GET', '/v1/transactions/slow', [['x-api-key', liveKey]]);
  await connection.until(() => Buffer.concat(connection.of('data', 1).map(({ payload }) => payload)).length === 2);
  t.notOk(connection.isOver(1));
  await connection.until(() => connection.isOver(1) && connection.isOver(3));
  t.same([connection.reset(1), connection.reset(3)], [2, null], 'INTERNAL_ERROR, and an answer');
  t.equal(await leftOpen([gateway], soonMilliseconds), 0);
});
