import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setImmediate as turn, setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { stallProcess } from '../stall-process.js';
import {
  connect,
  exchangeBytes,
  type GatewaySetup,
  liveKey,
  parseResponse,
  requestBytes,
  startTestGateway,
  startUpstream,
  type Teardown,
} from './harness.js';

const headers = [['x-api-key', liveKey]] as const;

type Config = NonNullable<GatewaySetup['config']>;

/** Opens a connection to a new gateway with this configuration. */
async function open(t: Teardown, config: Config): Promise<Socket> {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  const socket = connect(gateway.https, gateway.ca);
  await once(socket, 'secureConnect');
  return socket;
}

/**
 * Writes bytes, and stalls the process for longer than the timeouts of these tests. Returns all received bytes. After a
 * stall, Node runs due timers before it reads the bytes.
 */
async function receivedAfterStall(socket: Socket, bytes: string): Promise<string> {
  await wait(20); // gives the gateway time to read what was written before
  await turn(); // so that the timers run right after the stall
  const received = exchangeBytes(socket, bytes);
  stallProcess(3_500); // more than two seconds plus the one that Node 24 adds to a keep-alive timeout
  return received;
}

/** Like `receivedAfterStall`, but returns the status of the first response. */
async function statusAfterStall(socket: Socket, bytes: string): Promise<number> {
  return parseResponse(await receivedAfterStall(socket, bytes)).status;
}

t.test('a request whose head arrives while the process stalls is not late', async (t) => {
  const socket = await open(t, { limits: { headersTimeoutSeconds: 2 } });
  t.equal(await statusAfterStall(socket, requestBytes({ headers })), 200);
});

t.test('a request that arrives and ends right after a stall is not followed by a refusal', async (t) => {
  const gateway = await startTestGateway(t, {
    publicApi: JSON.stringify('x'.repeat(20_000)), // over 16,384 bytes, so the response ends as soon as it is written
    config: { limits: { headersTimeoutSeconds: 2 }, trustedProxies: ['127.0.0.1'] },
  });
  const socket = connect(gateway.http, null);
  await once(socket, 'connect');
  const last = requestBytes({ path: '/v1/openapi.json', headers: [...headers, ['x-forwarded-proto', 'https']] });
  socket.once('data', () => socket.write(last));
  const received = await receivedAfterStall(socket, last.replace('Connection: close\r\n', ''));
  const statuses = [...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
  t.same(statuses, ['200', '200'], 'the connection also serves the next request');
});

t.test('a request whose body arrives while the process stalls is not late', async (t) => {
  const socket = await open(t, { limits: { headersTimeoutSeconds: 2, requestTimeoutSeconds: 2 } });
  const payout = requestBytes({ method: 'POST', path: '/v1/payouts', headers, body: '{}' });
  socket.write(payout.slice(0, -1));
  t.equal(await statusAfterStall(socket, payout.slice(-1)), 200);
});

t.test('a late head or body is refused, even if a part of it arrives while the process stalls', async (t) => {
  const limits = { headersTimeoutSeconds: 2, requestTimeoutSeconds: 2 };
  const payout = requestBytes({ method: 'POST', path: '/v1/payouts', headers, body: '{ }' });
  for (const begin of [10, payout.length - 2]) {
    const socket = await open(t, { limits });
    socket.write(payout.slice(0, begin));
    t.equal(await statusAfterStall(socket, payout.slice(begin, begin + 1)), 408);
  }
});

t.test('a request that arrives on a kept connection while the process stalls gets its response', async (t) => {
  const socket = await open(t, { limits: { keepAliveTimeoutSeconds: 2 } });
  const request = requestBytes({ headers });
  socket.write(request.replace('Connection: close\r\n', ''));
  await once(socket, 'data');
  t.equal(await statusAfterStall(socket, request), 200);
});

t.test('a kept connection without a further request is closed after its timeout', { timeout: 60_000 }, async (t) => {
  const socket = await open(t, { limits: { keepAliveTimeoutSeconds: 1 } });
  const begin = performance.now();
  socket.write(requestBytes({ headers }).replace('Connection: close\r\n', ''));
  await once(socket, 'data');
  await once(socket, 'close');
  t.ok(performance.now() - begin > 900, 'not closed earlier');
});
