import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { until } from '../telemetry/open-log.js';
import { ask, liveKey, startTestGateway, startUpstream } from './harness.js';

const waitMilliseconds = 5_000;

t.test('metrics report the open connections and the requests in flight per service', async (t) => {
  const held: ServerResponse[] = [];
  const upstream = await startUpstream(t);
  upstream.respond = (_request, response) => held.push(response);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });

  const metrics = async (): Promise<Record<string, number>> => {
    const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
    const lines = text.matchAll(/^(?:gateway_connections|gateway_upstream_requests_in_flight)\{\w+="(\w+)"\} (\d+)$/gm);
    return Object.fromEntries([...lines].map(([, of = '', value]) => [of, Number(value)]));
  };
  const become = async (expected: Record<string, number>, message: string): Promise<void> => {
    const end = performance.now() + waitMilliseconds;
    let found = await metrics();
    while (!isDeepStrictEqual(found, expected) && performance.now() < end) {
      await delay(10);
      found = await metrics();
    }
    t.same(found, expected, message);
  };

  await become({ https: 0, http: 0, customers: 0, payouts: 0, transactions: 0 }, 'none at the start');
  const silent = Array.from({ length: 3 }, () => net.connect(gateway.https, '127.0.0.1'));
  const plain = net.connect(gateway.http, '127.0.0.1');
  await Promise.all([...silent, plain].map((socket) => once(socket, 'connect')));
  const headers = [['x-api-key', liveKey]] as const;
  const asked = [1, 2].map(() => ask(gateway, { path: '/v1/transactions', headers }));
  await become(
    { https: 5, http: 1, customers: 0, payouts: 0, transactions: 2 },
    'connections count without a handshake or request too',
  );

  await until(() => held.length === 2);
  for (const response of held) response.end('{}');
  t.same(
    (await Promise.all(asked)).map(({ status }) => status),
    [200, 200],
  );
  for (const socket of [...silent, plain]) socket.destroy();
  await become({ https: 0, http: 0, customers: 0, payouts: 0, transactions: 0 }, 'none once all have closed');
});
