import { once } from 'node:events';
import t from 'tap';
import { ask, connect, liveKey, requestBytes, startTestGateway, startUpstream } from '../edge/harness.js';
import { until } from '../telemetry/open-log.js';

interface Line {
  readonly http: { readonly request: { readonly id: string }; readonly response: { readonly body: { bytes: number } } };
  readonly client: { readonly ip?: string };
  readonly gateway: { readonly upstream?: object };
  readonly event: { readonly code: string };
}

const key = ['x-api-key', liveKey] as const;

// It named the service, so that a payout looked as if it had perhaps been made; and bytes that nobody was given.
t.test('the line of a request of which nothing was sent names no service', async (t) => {
  const upstream = await startUpstream(t);
  const { url } = upstream;
  const gateway = await startTestGateway(t, {
    config: { upstreams: { payouts: { url, maxInFlight: 1 }, transactions: { url } } },
  });
  const lines = gateway.lines as unknown as Line[];
  const post = requestBytes({ method: 'POST', path: '/v1/payouts', body: '{"amount":1}', headers: [key] });
  const socket = connect(gateway.https, gateway.ca);
  socket.on('error', () => undefined);
  socket.write(post.slice(0, -5));
  await until(() => socket.bytesWritten > 0);
  await new Promise((resolve) => setTimeout(resolve, 100)); // the gateway waits for the rest of the body
  socket.destroy();
  await until(() => lines.length === 1);
  t.match(lines[0], { event: { code: 'client_closed' } });
  t.equal(lines[0]?.gateway.upstream, undefined);
  t.equal(lines[0]?.http.response.body.bytes, 0);
  t.same(upstream.seen, []);

  upstream.respond = () => undefined;
  const first = connect(gateway.https, gateway.ca);
  first.on('error', () => undefined);
  first.write(post);
  await until(() => upstream.seen.length === 1);
  t.equal((await ask(gateway, { method: 'POST', path: '/v1/payouts', body: '{}', headers: [key] })).status, 503);
  await until(() => lines.length === 2);
  t.match(lines[1], { event: { code: 'upstream_busy' } });
  t.equal(lines[1]?.gateway.upstream, undefined);
  first.destroy();
  await until(() => lines.length === 3);
  t.match(lines[2], { event: { code: 'client_closed' }, gateway: { upstream: { name: 'payouts' } } });
});

// Whoever attacked from behind a balancer had no name in just these lines.
t.test('a request that is refused before anything is decided has its client address', async (t) => {
  const client = '203.0.113.9';
  let problem: string | null = null;
  const lines: Line[] = [];
  const gateway = await startTestGateway(t, {
    config: { trustedProxies: ['127.0.0.1'] },
    accessLog: {
      write: (line) => lines.push(JSON.parse(line) as Line),
      problem: () => problem,
      lost: () => 0,
      foreignBytes: () => 0,
      heldBytes: () => 0,
      close: () => Promise.resolve(),
    },
  });
  const headers = [['x-forwarded-for', client]] as const;
  await ask(gateway, { host: null, headers });
  await ask(gateway, { path: `/v1/transactions/${'x'.repeat(9000)}`, headers });
  problem = 'the disk is full';
  await ask(gateway, { headers });
  problem = null;
  await ask(gateway, { headers: [['x-forwarded-for', 'nobody']] });
  await until(() => lines.length === 4);
  t.same(
    lines.map((line) => [line.event.code, line.client.ip]),
    [
      ['invalid_host', client],
      ['target_too_long', client],
      ['access_log_unavailable', client],
      ['invalid_forwarded_for', undefined],
    ],
  );
});

t.test('a request that was not looked at has an id of its own', async (t) => {
  const upstream = await startUpstream(t);
  upstream.respond = () => undefined;
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const socket = connect(gateway.https, gateway.ca);
  socket.write(
    requestBytes({ headers: [key] })
      .replace('Connection: close\r\n', '')
      .repeat(3),
  );
  await until(() => upstream.seen.length === 1);
  socket.destroy();
  await Promise.all([once(socket, 'close'), until(() => gateway.lines.length === 3)]);
  const ids = (gateway.lines as unknown as Line[]).map((line) => line.http.request.id);
  t.ok(ids.every((id) => /^[0-9A-Z]{26}$/.test(id)));
  t.equal(new Set(ids).size, 3);
});
