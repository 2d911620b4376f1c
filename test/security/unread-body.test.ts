import http from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { Test } from 'tap';
import { liveKey, recordsOf, startBareUpstream, startTestGateway } from '../edge/harness.js';
import type { GatewayUnderTest, Teardown } from '../edge/harness.js';

// A service may respond without reading the request body. On a connection that is kept, the body is then the beginning of the
// next request. A body that is half a request head is completed by the next merchant's request, with that merchant's identity.

const keys = ['svc_live_merchantZero', 'svc_live_merchantOne', liveKey] as const;
const merchants = ['m_0', 'm_1', 'm_2'] as const;

interface Seen {
  readonly line: string;
  readonly merchants: readonly string[];
  readonly connection: string;
}

/** A service that responds to each head with the merchant's name, and takes a body for the next request. */
async function startCareless(t: Teardown): Promise<{ url: string; seen: Seen[]; sockets: Socket[] }> {
  const seen: Seen[] = [];
  const sockets: Socket[] = [];
  const url = await startBareUpstream(t, (socket) => {
    let text = '';
    sockets.push(socket);
    socket
      .on('error', () => undefined)
      .on('data', (bytes) => {
        text += bytes.toString('latin1');
        for (let end = text.indexOf('\r\n\r\n'); end >= 0; end = text.indexOf('\r\n\r\n')) {
          const head = text.slice(0, end);
          text = text.slice(end + 4);
          const named = [...head.matchAll(/^x-merchant-id: (\S+)/gim)].map(([, id = '']) => id);
          const [line = ''] = head.split('\r\n');
          seen.push({ line, merchants: named, connection: /^connection: (\S+)/im.exec(head)?.[1] ?? '' });
          const body = named.join();
          socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
        }
      });
  });
  return { url, seen, sockets };
}

async function startGateway(t: Teardown, url: string, options: object = {}): Promise<GatewayUnderTest> {
  const records = Object.assign(
    {},
    ...keys.map((key, index) => recordsOf(key, { key: { keyId: `key_${index}`, merchantId: merchants[index] ?? '' } })),
  ) as ReturnType<typeof recordsOf>;
  const upstream = { url, ...options };
  return startTestGateway(t, {
    records,
    config: {
      trustedProxies: ['127.0.0.1'],
      upstreams: { transactions: upstream, payouts: upstream, customers: upstream },
    },
  });
}

interface Ask {
  readonly key: string;
  readonly method?: string;
  readonly path?: string;
  readonly body?: string;
  readonly chunked?: boolean;
}

/** Makes a client that keeps its connections, and returns the body of each response. */
function clientOf(t: Teardown, { http: port }: GatewayUnderTest): (what: Ask) => Promise<string> {
  const agent = new http.Agent({ keepAlive: true });
  t.teardown(() => {
    agent.destroy();
  });
  return ({ key, method = 'GET', path = '/v1/transactions', body, chunked = false }) =>
    new Promise((resolve, reject) => {
      const framing = body === undefined || chunked ? {} : { 'content-length': Buffer.byteLength(body) };
      const headers = { 'x-api-key': key, 'x-forwarded-proto': 'https', ...framing };
      const request = http.request({ agent, port, host: '127.0.0.1', method, path, headers }, (response) => {
        let text = '';
        response.setEncoding('latin1').on('data', (part: string) => (text += part));
        response.on('end', () => {
          resolve(text);
        });
      });
      request.on('error', reject);
      if (chunked) request.flushHeaders();
      request.end(body);
    });
}

/** Bodies that are half a request head: no stray response ever shows. */
const halfHeads = [
  'POST /payouts?to=attacker HTTP/1.1\r\nx-ignore: ',
  'POST /payouts?to=attacker HTTP/1.1\r\n',
  'GET /payouts?to=attacker',
];

async function tries(
  t: Test,
  gateway: GatewayUnderTest,
  { count, bodies, chunked = false }: { count: number; bodies: readonly string[]; chunked?: boolean },
): Promise<number> {
  const ask = clientOf(t, gateway);
  let wrong = 0;
  for (let turn = 0; turn < count; turn += 1) {
    const body = bodies[turn % bodies.length] ?? '';
    const path = '/v1/payouts';
    await ask({ key: keys[0], method: 'POST', path, body, chunked });
    const other = 1 + (turn % 2);
    const response = await ask({ key: keys[other] ?? '', path });
    if (response !== merchants[other]) wrong += 1;
  }
  return wrong;
}

t.test('a body that its service did not read is never part of another merchant’s request', async (t) => {
  const service = await startCareless(t);
  const gateway = await startGateway(t, service.url);
  t.equal(await tries(t, gateway, { count: 1_000, bodies: halfHeads }), 0);
  const mixed = service.seen.filter(({ line, merchants }) => line.includes('attacker') && merchants.join() !== 'm_0');
  t.same(mixed, [], 'each such request has the identity of the merchant that sent it');
  t.ok(
    service.seen.some(({ line }) => line.includes('attacker')),
    'the service did take bodies for requests',
  );
  t.same(gateway.unsolicited, [], 'and no stray byte ever showed it');
});

t.test('where the operator says that the service reads every body, merchants share a connection', async (t) => {
  const service = await startCareless(t);
  const gateway = await startGateway(t, service.url, { readsBodies: true });
  const ask = clientOf(t, gateway);
  for (const key of keys) {
    await ask({ key, method: 'POST', path: '/v1/payouts', body: '\r\n' });
    await wait(110);
  }
  t.equal(service.sockets.length, 1);
});

t.test('whole requests in bodies reach no other merchant either, and are noticed', async (t) => {
  const service = await startCareless(t);
  const forged = 'POST /payouts?to=attacker HTTP/1.1\r\nx-merchant-id: m_2\r\n\r\n';
  for (const chunked of [false, true]) {
    const gateway = await startGateway(t, service.url);
    t.equal(await tries(t, gateway, { count: 100, bodies: [forged, ...halfHeads], chunked }), 0);
    t.ok(gateway.unsolicited.length > 0);
  }
});

t.test('a stray response meets at most one request, however late it is', async (t) => {
  for (const [late, latency, clients] of [
    [5, 0, 1],
    [20, 0, 1],
    [50, 0, 1],
    [5, 25, 1],
    [20, 25, 1],
    [50, 60, 1],
    [5, 10, 8],
    [20, 30, 8],
    [50, 60, 8],
  ] as const) {
    let isFirst = true;
    const url = await startBareUpstream(t, (socket) => {
      socket.setNoDelay(true).on('error', () => undefined);
      const respond = (body: string): void => {
        if (socket.writable) socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
      };
      socket.on('data', (bytes) => {
        const id = /^GET \/transactions\?(\d+) /.exec(bytes.toString('latin1'))?.[1] ?? '';
        const isStray = isFirst;
        isFirst = false;
        setTimeout(() => {
          respond(id);
          if (isStray) setTimeout(respond, late, 'stray');
        }, latency);
      });
    });
    const gateway = await startGateway(t, url);
    const ask = clientOf(t, gateway);
    let [wrong, count] = [0, 0];
    const client = async (): Promise<void> => {
      while (count < 60) {
        const id = String((count += 1));
        if ((await ask({ key: keys[count % 3] ?? '', path: `/v1/transactions?${id}` })) !== id) wrong += 1;
      }
    };
    await Promise.all(Array.from({ length: clients }, client));
    t.ok(wrong <= 1, `${late} ms late, responses after ${latency} ms, ${clients} clients: ${wrong} of ${count} wrong`);
  }
});

t.test(
  'an unsolicited byte ends every connection to that upstream, and for a minute each carries one request',
  async (t) => {
    const service = await startCareless(t);
    const gateway = await startGateway(t, service.url);
    const ask = clientOf(t, gateway);
    await Promise.all(keys.map((key) => ask({ key })));
    const [first] = service.sockets;
    const closed = service.sockets.map((socket) => new Promise((resolve) => socket.once('close', resolve)));
    first?.write('x');
    await Promise.all(closed);
    t.same(gateway.unsolicited, ['transactions']);
    service.seen.length = 0;
    const before = service.sockets.length;
    for (const key of keys) await ask({ key });
    t.equal(service.sockets.length, before + keys.length);
    t.same(
      service.seen.map(({ connection }) => connection),
      ['close', 'close', 'close'],
    );
    const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
    t.match(text, 'gateway_upstream_unsolicited_bytes_total{upstream="transactions"} 1\n');
    t.match(text, 'gateway_upstream_unsolicited_bytes_total{upstream="payouts"} 0\n', 'the others go on as before');
  },
);

t.test('requests in flight finish when an unsolicited byte arrives, and then their connections close', async (t) => {
  const sockets: Socket[] = [];
  const url = await startBareUpstream(t, (socket) => {
    sockets.push(socket);
    socket
      .on('error', () => undefined)
      .on('data', (bytes) => {
        const isSlow = bytes.includes('slow');
        setTimeout(() => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'), isSlow ? 100 : 0);
      });
  });
  const gateway = await startGateway(t, url);
  const ask = clientOf(t, gateway);
  t.equal(await ask({ key: keys[0] }), 'ok');
  const slow = ask({ key: keys[1], path: '/v1/transactions?slow' });
  while (sockets.length < 2) await wait(1);
  sockets[0]?.write('HTTP/1.1 500 Stray\r\n\r\n');
  t.equal(await slow, 'ok');
  for (const socket of sockets) if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
  t.same(gateway.unsolicited, ['transactions']);
});

t.test('a 408 on an idle connection closes that connection, and nothing else', async (t) => {
  const service = await startCareless(t);
  const gateway = await startGateway(t, service.url);
  const ask = clientOf(t, gateway);
  await Promise.all(keys.map((key) => ask({ key })));
  t.equal(service.sockets.length, 3);
  const [first] = service.sockets;
  first?.write('HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
  await new Promise((resolve) => first?.once('close', resolve));
  t.same(gateway.unsolicited, []);
  t.same(
    service.sockets.map(({ closed }) => closed),
    [true, false, false],
  );
});

t.test('bound idle connections have a limit of their own, and the least recently used one closes first', async (t) => {
  const service = await startCareless(t);
  const gateway = await startGateway(t, service.url, { maxInFlight: 1, boundIdle: 2 });
  const ask = clientOf(t, gateway);
  for (const key of keys) t.ok(await ask({ key, method: 'POST', path: '/v1/payouts', body: '\r\n' }));
  t.equal(service.sockets.length, 3, 'idle bound connections take no place of maxInFlight');
  const [first] = service.sockets;
  if (first?.closed === false) await new Promise((resolve) => first.once('close', resolve));
  t.same(
    service.sockets.map(({ closed }) => closed),
    [true, false, false],
  );
  const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(text, 'gateway_upstream_bound_idle_connections{upstream="payouts"} 2\n');
  await wait(110);
  t.equal(await ask({ key: keys[2] }), 'm_2');
});
