import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import https from 'node:https';
import net from 'node:net';
import type { Socket } from 'node:net';
import path from 'node:path';
import Database from 'libsql';
import t from 'tap';
import { startTestGateway } from '../edge/harness.js';
import { testQueries } from './dashboard.js';
import { until } from './rig.js';
import { askServices, exit, metricValue, openScenes, options, times, unknownKey } from './scenes.js';

t.test('alerts on requests fire for their causes, and never in a quiet hour', options, async (t) => {
  const scenes = await openScenes(t, 'requests');
  const { admin, ask, caused, folder, gateways, key, registry, services, start, upstream } = scenes;
  await t.test('each query of the dashboard uses metrics and labels of running processes, and returns a result', (t) =>
    testQueries(t, scenes),
  );

  const [gateway] = gateways;
  const changed = { 'gateway 1': gateway };
  const exposed = (code: string) => metricValue(gateway, `gateway_keys_exposed_total{code="${code}"}`);

  for (const [code, how] of [
    ['https_required', { isPlain: true }],
    ['tor_blocked', { from: exit }],
  ] as const) {
    const before = await exposed(code);
    await ask(gateway, { key: null, ...how });
    await ask(gateway, { key: unknownKey(2), ...how });
    await caused(
      ['GatewayKeysExposed'],
      changed,
      () => ask(gateway, { key, ...how }),
      async () => (await exposed(code)) > before,
    );
    t.equal(await exposed(code), before + 1, 'a request without a key or with an invented key exposes none');
  }
  await caused(['GatewayRefusesAll', 'GatewayKeysGuessed'], changed, async () => {
    // Not all at once: 800 new connections would overload a gateway on a busy machine, so that it responds with 503.
    for (let first = 0; first < 800; first += 20)
      await times(20, (offset) => {
        const index = first + offset;
        return ask(gateway, { key: unknownKey(index), from: `203.0.113.${index % 250}` });
      });
  });
  const flooded = await start('gateway', {
    throttle: { badKeys: 5, totalBadKeys: 4, lookupsPerSecond: 1, totalLookupsPerSecond: 1 },
  });
  await caused(
    ['GatewayFlooded', 'GatewayLookupsRefused'],
    { 'gateway 1': flooded },
    async () => {
      await times(6, (index) => ask(flooded, { key: null, from: `203.0.113.${index}` }));
      for (let count = 0; count < 6; count += 1) await ask(flooded, { key: unknownKey(count), from: '203.0.113.99' });
      await times(30, () => ask(flooded, { key }));
    },
    async () => (await metricValue(flooded, 'gateway_throttle_total_reached')) === 1,
  );
  await flooded.kill();
  await caused(['RegistryTokenRefused'], { registry }, () =>
    times(3, () => admin(registry, 'GET', '/merchants', undefined, 'a-token-that-nobody-has-ever-given-out')),
  );
  await caused(
    ['RegistryTokensExpire'],
    { registry },
    async () => {
      const ada = { name: 'ada', roles: ['support'] };
      const { data } = await admin(registry, 'POST', '/administrators', ada);
      const body = { name: 'soon', administratorId: data.id, expiresInSeconds: 86_400 };
      await admin(registry, 'POST', '/tokens', body);
    },
    async () => (await metricValue(registry, 'registry_tokens_expiring')) === 1,
  );

  const { respond } = upstream;
  const respondingWith = (bad: typeof respond) => async (): Promise<void> => {
    upstream.respond = bad;
    await times(8, () => ask(gateway, { key, path: '/payouts' }));
    upstream.respond = respond;
  };
  await caused(['GatewayUpstreamFailing'], changed, async () => {
    upstream.respond = (request) => request.socket.destroy();
    for (let count = 0; count < 8; count += 1) await ask(gateway, { key, path: '/payouts' });
    upstream.respond = respond;
  });
  await caused(['GatewayUpstreamUnavailable'], changed, async () => {
    let count = 0;
    upstream.respond = (_request, response: ServerResponse) => {
      count += 1;
      response.writeHead(503).end();
    };
    // Sends requests one after another until the upstream has received 8. At its limits, the gateway refuses some of
    // them itself.
    while (count < 8) await ask(gateway, { key, path: '/payouts' });
    upstream.respond = respond;
  });
  await caused(['GatewayUpstreamBusy'], changed, async () => {
    const held: ServerResponse[] = [];
    upstream.respond = (_request, response) => void held.push(response);
    const waiting: Promise<number>[] = [];
    await until('the upstream has as many requests as it may', () => {
      if (held.length < 2) waiting.push(ask(gateway, { key, path: '/payouts' }));
      return held.length >= 2;
    });
    for (let count = 0; count < 8; count += 1) await ask(gateway, { key, path: '/payouts' });
    upstream.respond = respond;
    for (const response of held) response.end('{}');
    await Promise.all(waiting);
  });
  await caused(
    ['GatewayUpstreamOutOfStep'],
    changed,
    respondingWith((request, response) => {
      response.end('{}', () => request.socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}'));
    }),
    async () => (await metricValue(gateway, 'gateway_upstream_unsolicited_bytes_total{upstream="payouts"}')) > 0,
  );

  const roomy = await start('gateway', {
    ...{
      limits: { eventLoopDelayMilliseconds: 0, memory: 640 * 1024 * 1024 },
      rateLimit: { requestsPerSecond: null, shared: false },
    },
    upstreams: { payouts: { maxInFlight: 64 } },
  });
  /**
   * Sends `count` requests over plain HTTP, as behind a TLS-terminating proxy. Each declares a body of `declared` bytes
   * and sends only `sent` bytes of it. Returns the open sockets.
   */
  const beginBodies = (count: number, declared: number, sent: number): Socket[] =>
    Array.from({ length: count }, () => {
      const socket = net.connect({ port: roomy.ports.http ?? 0, host: '127.0.0.1' }).on('error', () => undefined);
      const proxied = 'x-forwarded-for: 203.0.113.9\r\nx-forwarded-proto: https\r\n';
      socket.write(`POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${key}\r\n${proxied}`);
      socket.write(`Content-Length: ${declared}\r\n\r\n${'x'.repeat(sent)}`);
      return socket.resume();
    });
  for (const [alert, reason, enough, most, begin] of [
    ['GatewayBodyMemoryFull', 'memory', 1, 2_000, () => beginBodies(50, 65_536, 65_000)],
    ['GatewayBodiesSlow', 'slow', 16, 16, () => beginBodies(16, 100_000, 70_000)],
  ] as const) {
    let opened: Socket[] = [];
    const refused = async () =>
      (await metricValue(roomy, `gateway_bodies_refused_total{reason="${reason}"}`)) >= enough;
    const more = async (): Promise<boolean> => {
      // Opens a few bodies at a time, and replaces closed ones: a gateway on a busy machine refuses some bodies for
      // another reason.
      opened = opened.filter(({ closed }) => !closed);
      if (opened.length < most) opened.push(...begin());
      return refused();
    };
    await caused([alert], { 'gateway 1': roomy }, () => until(`bodies refused: ${reason}`, more));
    for (const socket of opened) socket.destroy();
    await until('the requests are gone', async () => (await metricValue(roomy, 'gateway_buffered_body_bytes')) === 0);
  }
  await roomy.kill();

  const database = new Database(path.join(folder, 'services.db'));
  t.teardown(() => database.close());
  database.exec('pragma busy_timeout = 10000'); // the services write concurrently
  await caused(['ServicesFailing'], { services }, async () => {
    database.exec('ALTER TABLE transactions RENAME TO gone');
    await times(8, () => askServices(services));
    database.exec('ALTER TABLE gone RENAME TO transactions');
  });

  // The services compare balances with ledger entries when they start.
  database.exec(`INSERT INTO wallets (merchant_id, environment, created_at, id, currency, balance, is_default)
    VALUES ('m_1', 'live', 0, '0b8f6f0e-4c9b-4a35-9b52-3a4d5f6e7a80', 'EUR', 5, 1)`);
  await caused(['ServicesLedgerMismatch'], { services: await start('services') }, () => undefined);

  database.exec(`INSERT INTO operator_events (id, at, event) VALUES ('one', 0, '{}')`);
  await caused(['ServicesTrailDelayed'], { services: await start('services') }, () => undefined);

  // No known input causes an internal error in a gateway, so its key store throws one.
  const unforeseen = await startTestGateway(t, {
    keyStore: {
      find: () => Promise.reject(new Error('unforeseen')),
      unavailableReason: () => null,
      close: () => Promise.resolve(),
    },
  });
  const scrape = async () => {
    const text = await (await fetch(`http://127.0.0.1:${unforeseen.management}/metrics`)).text();
    return { text, time: Date.now() / 1000 };
  };
  const before = await scrape();
  const asked = https.get({
    port: unforeseen.https,
    path: '/v1/transactions',
    headers: { 'x-api-key': key },
    ca: unforeseen.ca,
    servername: 'localhost',
  });
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  t.equal(response.statusCode, 500);
  await once(response.resume(), 'close');
  scenes.add('GatewayInternalErrors', 'gateway 1', before, await scrape());
  scenes.evaluate();
});
