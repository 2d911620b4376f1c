import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { MemoryRecords } from '../../src/adapters/memory/memory-records.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import {
  connect,
  type GatewayUnderTest,
  liveKey,
  recordsOf,
  requestBytes,
  startTestGateway,
  startUpstream,
} from '../edge/harness.js';

/** Something in front of carrying a request out: that it has begun, and how it goes on. */
interface Pause {
  readonly wait: () => Promise<void>;
  readonly goOn: () => void;
}

/** Has callers leave while each request is within a pause, and waits until each has its line. */
async function askAndLeave(gateway: GatewayUnderTest, pause: Pause): Promise<void> {
  for (const [count, method] of ['DELETE', 'GET', 'POST'].entries()) {
    const begun = pause.wait();
    const socket = connect(gateway.https, gateway.ca);
    socket.write(requestBytes({ method, path: '/v1/dev/customers/1', headers: [['x-api-key', liveKey]] }));
    await begun;
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.destroy();
    await closed;
    await new Promise((resolve) => setTimeout(resolve, 20)); // the gateway hears of it over a real connection
    pause.goOn();
    while (gateway.lines.length <= count) await new Promise((resolve) => setImmediate(resolve));
  }
}

// A caller who hung up while its key was looked up had its DELETE carried out all the same, and the log did not say
// whose key it was.
t.test(
  'client abort during the key lookup: the request is not forwarded, and its log line names the merchant',
  async (t) => {
    const upstream = await startUpstream(t);
    const known = new RecordKeyStore(new MemoryRecords(recordsOf(liveKey)));
    let asked = (): void => undefined;
    let goOn = (): void => undefined;
    const gateway = await startTestGateway(t, {
      upstreamUrl: upstream.url,
      keyStore: {
        find: async (lookupId) => {
          asked();
          await new Promise<void>((resolve) => (goOn = resolve));
          return known.find(lookupId);
        },
        unavailableReason: () => null,
        close: () => Promise.resolve(),
      },
    });
    await askAndLeave(gateway, {
      wait: () => new Promise<void>((resolve) => (asked = resolve)),
      goOn: () => {
        goOn();
      },
    });
    t.same(upstream.seen, []);
    for (const line of gateway.lines) {
      t.match(line, {
        event: { code: 'client_closed' },
        organization: { id: 'm_1' },
        gateway: { key: { id: 'key_1' } },
      });
    }
  },
);

// A count that all gateways share is a second moment in which the caller can leave.
t.test('client abort while the request is counted: it is not forwarded', async (t) => {
  const upstream = await startUpstream(t);
  let counting = (): void => undefined;
  let goOn = (): void => undefined;
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { rateLimit: { requestsPerSecond: 1 } },
    sharedRate: {
      take: async () => {
        counting();
        await new Promise<void>((resolve) => (goOn = resolve));
        return { taken: true, tokens: 1 };
      },
      close: () => Promise.resolve(),
    },
  });
  await askAndLeave(gateway, {
    wait: () => new Promise<void>((resolve) => (counting = resolve)),
    goOn: () => {
      goOn();
    },
  });
  t.same(upstream.seen, []);
  for (const line of gateway.lines) t.match(line, { event: { code: 'client_closed' }, organization: { id: 'm_1' } });
});

// A response to a caller who had left was held for `answerTimeoutSeconds`, by a timer that also kept the drained
// process from ending.
t.test('client abort: what an aborted request holds is released when its upstream responds', async (t) => {
  const upstream = await startUpstream(t);
  const waiting: ServerResponse[] = [];
  upstream.respond = (_request, response) => waiting.push(response);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
  const before = timers();
  const many = 30;
  const sockets = Array.from({ length: many }, () => connect(gateway.https, gateway.ca).on('error', () => undefined));
  for (const socket of sockets) {
    socket.write(requestBytes({ method: 'POST', path: '/v1/payouts', headers: [['x-api-key', liveKey]], body: '{}' }));
  }
  while (waiting.length < many) await new Promise((resolve) => setImmediate(resolve));
  for (const socket of sockets) socket.destroy();
  while (gateway.lines.length < many) await new Promise((resolve) => setImmediate(resolve));
  for (const response of waiting) response.end('{}');
  while (upstream.sockets.size > 0 && timers() - before >= many) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  t.ok(timers() - before < many, `${timers() - before} more timers than before`);
});

// The error of a request that broke off was emitted a tick after Node had seen somebody listen for it. The upload was over in
// that tick, nobody listened any more, and the process ended, with every request that it carried.
t.test('client abort during an upload ends that request only', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (const method of ['GET', 'POST', 'PUT', 'DELETE']) {
    for (let count = 0; count < 40; count += 1) {
      const socket = connect(gateway.https, gateway.ca);
      socket.on('error', () => undefined);
      await once(socket, 'secureConnect');
      const head = `${method} /v1/dev/customers/1 HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${liveKey}\r\n`;
      socket.write(`${head}Content-Length: 100000\r\n\r\n${'a'.repeat(count % 2 === 0 ? 30_000 : 70_000)}`);
      await wait(count % 5);
      const closed = once(socket, 'close');
      socket.destroy();
      await closed;
    }
  }
  await wait(50);
  t.ok(gateway.lines.length > 40);
  t.ok(gateway.lines.every((line) => (line.event as { code: string }).code === 'client_closed'));
});

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
t.test('connection reset during the TLS handshake: every request ends within seconds', async (t) => {
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

t.test('a client that pauses reading for some seconds is not mistaken for a reset connection', async (t) => {
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
