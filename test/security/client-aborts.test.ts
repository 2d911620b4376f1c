import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import tls from 'node:tls';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { MemoryRecords } from '../../src/adapters/memory/memory-records.js';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import {
  connect,
  type GatewayUnderTest,
  liveKey,
  recordsOf,
  requestBytes,
  startBareUpstream,
  startTestGateway,
  startUpstream,
} from '../edge/harness.js';

/** A step before a request is forwarded. `wait` resolves when the step has begun, and `resume` ends it. */
interface Pause {
  readonly wait: () => Promise<void>;
  readonly resume: () => void;
}

/** Sends three requests whose clients disconnect during the pause. Waits for the log line of each. */
async function sendAndDisconnect(gateway: GatewayUnderTest, pause: Pause): Promise<void> {
  for (const [count, method] of ['DELETE', 'GET', 'POST'].entries()) {
    const begun = pause.wait();
    const socket = connect(gateway.https, gateway.ca);
    socket.write(requestBytes({ method, path: '/v1/dev/customers/1', headers: [['x-api-key', liveKey]] }));
    await begun;
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.destroy();
    await closed;
    // Waits until the close has reached the gateway. In each turn, this process reads what has arrived.
    for (let turn = 0; turn < 20; turn += 1) await wait(1);
    pause.resume();
    while (gateway.lines.length <= count) await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

// Regression: when a client disconnected during the key lookup, its DELETE was carried out all the same, and the log
// did not say whose key it was.
t.test(
  'client abort during the key lookup: the request is not forwarded, and its log line names the merchant',
  async (t) => {
    const upstream = await startUpstream(t);
    const known = new RecordKeyStore(new MemoryRecords(recordsOf(liveKey)));
    let lookupStarted = (): void => undefined;
    let resume = (): void => undefined;
    const gateway = await startTestGateway(t, {
      upstreamUrl: upstream.url,
      keyStore: {
        find: async (lookupId) => {
          lookupStarted();
          await new Promise<void>((resolve) => (resume = resolve));
          return known.find(lookupId);
        },
        unavailableReason: () => null,
        close: () => Promise.resolve(),
      },
    });
    await sendAndDisconnect(gateway, {
      wait: () => new Promise<void>((resolve) => (lookupStarted = resolve)),
      resume: () => {
        resume();
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

// Rate limits are counted in a store that all gateways share. While a gateway waits for it, the client can disconnect as well.
t.test('client abort while the request is counted: it is not forwarded', async (t) => {
  const upstream = await startUpstream(t);
  let counting = (): void => undefined;
  let resume = (): void => undefined;
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { rateLimit: { requestsPerSecond: 1 } },
    sharedRate: {
      take: async () => {
        counting();
        await new Promise<void>((resolve) => (resume = resolve));
        return { taken: true, tokens: 1 };
      },
      close: () => Promise.resolve(),
    },
  });
  await sendAndDisconnect(gateway, {
    wait: () => new Promise<void>((resolve) => (counting = resolve)),
    resume: () => {
      resume();
    },
  });
  t.same(upstream.seen, []);
  for (const line of gateway.lines) t.match(line, { event: { code: 'client_closed' }, organization: { id: 'm_1' } });
});

// Regression: when a client disconnected, the gateway cancelled only reads. A write that was not yet on a connection to
// the service was sent later, and its log line named no upstream.
t.test('client abort while the assertion is signed: the request is not forwarded', async (t) => {
  const upstream = await startUpstream(t);
  let signing = (): void => undefined;
  let resume = (): void => undefined;
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    identity: {
      assertionFor: async () => {
        signing();
        await new Promise<void>((resolve) => (resume = resolve));
        return 'assertion';
      },
      publicKeys: {},
    },
  });
  await sendAndDisconnect(gateway, {
    wait: () => new Promise<void>((resolve) => (signing = resolve)),
    resume: () => {
      resume();
    },
  });
  await gateway.drain(); // waits for requests that were forwarded
  t.same(upstream.seen, []);
  for (const line of gateway.lines) t.match(line, { event: { code: 'client_closed' }, organization: { id: 'm_1' } });
});

t.test('client abort while the service completes no TLS handshake: the payout is not sent', async (t) => {
  const { cert, key } = await createSelfSigned(new Date());
  const sockets: Socket[] = [];
  const url = await startBareUpstream(t, (socket) => sockets.push(socket.on('error', () => undefined)));
  let received = '';
  const service = tls.createServer({ cert, key }, (socket) => {
    socket
      .on('error', () => undefined)
      .on('data', (bytes: Buffer) => {
        received += bytes.toString('latin1');
        socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
      });
  });
  const payouts = {
    url: url.replace('127.0.0.1', 'localhost').replace('http:', 'https:'),
    caFile: `${t.testdir({ 'ca.pem': cert })}/ca.pem`,
  };
  const gateway = await startTestGateway(t, {
    config: { upstreams: { payouts }, routes: [{ path: '/payouts', upstream: 'payouts', resource: 'payouts' }] },
  });
  const client = connect(gateway.https, gateway.ca);
  client.write(
    requestBytes({ method: 'POST', path: '/v1/payouts', headers: [['x-api-key', liveKey]], body: '{"amount":1250}' }),
  );
  while (sockets.length === 0) await wait(1);
  client.destroy();
  while (gateway.lines.length === 0) await wait(1);
  const secured = once(service, 'secureConnection');
  service.emit('connection', sockets[0]);
  await secured;
  await gateway.drain(); // waits for requests that were forwarded
  t.equal(received, '');
  t.match(gateway.lines, [{ event: { code: 'client_closed' } }]);
});

// Regression: the response to a client that had disconnected was held for `answerTimeoutSeconds`. The timer also kept
// the drained process from exiting.
t.test('client abort: the resources of an aborted request are released when its upstream responds', async (t) => {
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
  while (waiting.length < many) await new Promise((resolve) => setTimeout(resolve, 1));
  for (const socket of sockets) socket.destroy();
  while (gateway.lines.length < many) await new Promise((resolve) => setTimeout(resolve, 1));
  for (const response of waiting) response.end('{}');
  while (upstream.sockets.size > 0 && timers() - before >= many) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  t.ok(timers() - before < many, `${timers() - before} more timers than before`);
});

// Regression: an aborted upload ended the process, with all of its requests. Node checked for a listener of the
// request's error, and emitted the error one tick later. In that tick the upload ended, and its listener was removed,
// so nothing handled the error.
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

// Runs in its own thread: the reset must arrive while the gateway finishes the TLS handshake.
const requestAndReset = `
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

// Regression: a client reset its connection while the tickets of its TLS session were being written, and the gateway
// never noticed. The response stayed in the TLS layer for a minute, and with it the connection and its access log line.
// A drain waited for them.
t.test('connection reset during the TLS handshake: every request ends within seconds', async (t) => {
  let lookups = 0;
  const gateway = await startTestGateway(t, {
    keyStore: {
      find: () => {
        lookups += 1;
        return { credential: null, source: 'store', ageMilliseconds: 0 };
      },
      unavailableReason: () => null,
      close: () => Promise.resolve(),
    },
  });
  const workerData = { port: gateway.https, ca: gateway.ca, connections: 300 };
  // On a busy machine many a reset arrives before its request has been read.
  for (let run = 0; lookups <= 50 && run < 20; run += 1) {
    await once(new Worker(requestAndReset, { eval: true, execArgv: [], workerData }), 'exit');
  }
  t.ok(lookups > 50, `${lookups} requests were read`);

  const end = Date.now() + 30_000;
  while (gateway.lines.length < lookups && Date.now() < end) await wait(50);
  t.equal(gateway.lines.length, lookups, 'each request that was looked up has its log line');
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
