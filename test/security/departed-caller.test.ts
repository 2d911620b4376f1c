import type { ServerResponse } from 'node:http';
import t from 'tap';
import { connect, liveKey, recordsOf, requestBytes, startTestGateway, startUpstream } from '../edge/harness.js';
import type { GatewayUnderTest } from '../edge/harness.js';
import { MemoryRecords } from '../../src/adapters/memory/memory-records.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';

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
  'a request whose caller left during the look-up is not carried out, and its line says whose it was',
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
t.test('a request whose caller left while it was counted is not carried out', async (t) => {
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
t.test('what a caller had asked who left is held no longer than until its answer', async (t) => {
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
