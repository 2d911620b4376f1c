import { once } from 'node:events';
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
} from './harness.js';

const request = requestBytes({ headers: [['x-api-key', liveKey]] }).replace('Connection: close\r\n', '');

/** A gateway whose drain delay ends when `closeNow` is called. */
async function startDraining(t: Parameters<typeof startTestGateway>[0], setup: GatewaySetup = {}) {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    ...setup,
    upstreamUrl: upstream.url,
    config: { limits: { drainTimeoutSeconds: 30 } },
  });
  let closeNow: () => void = () => undefined;
  const delay = new Promise<void>((resolve) => {
    closeNow = resolve;
  });
  return { upstream, gateway, drain: () => gateway.drain(delay), closeNow };
}

const statusAndConnection = (received: string): unknown => {
  const response = parseResponse(received);
  return [response.status, response.header('connection')];
};

t.test('during the drain delay connections are accepted, and each closes after its next response', async (t) => {
  const { gateway, drain, closeNow } = await startDraining(t);
  const kept = connect(gateway.https, gateway.ca);
  kept.write(request);
  const [first] = (await once(kept, 'data')) as [Buffer];
  t.notMatch(first.toString(), /connection: close/i, 'before the drain, keep-alive');

  const drained = drain();
  const ready = await fetch(`http://127.0.0.1:${gateway.management}/readyz`);
  t.match([ready.status, await ready.json()], [503, { status: 'not ready', problems: ['draining'] }]);
  t.same(
    statusAndConnection(await exchangeBytes(kept, request)),
    [200, 'close'],
    'a connection that was open gets one more response',
  );
  t.same(
    statusAndConnection(await exchangeBytes(connect(gateway.https, gateway.ca), request)),
    [200, 'close'],
    'a new connection gets one response',
  );

  const idle = connect(gateway.https, gateway.ca);
  await once(idle, 'secureConnect');
  const idleClosed = once(idle.resume(), 'close');
  closeNow();
  await Promise.all([drained, idleClosed]);
  await t.rejects(
    exchangeBytes(connect(gateway.https, gateway.ca), request),
    'after the drain delay connections are refused',
  );
});

for (const listener of ['https', 'http'] as const) {
  t.test(`${listener}: a request that arrives as the drain closes connections gets its response`, async (t) => {
    const { gateway, drain, closeNow } = await startDraining(t);
    const open = () => connect(gateway[listener], listener === 'https' ? gateway.ca : null);
    const status = listener === 'https' ? 200 : 401;
    const unused = open();
    await once(unused, listener === 'https' ? 'secureConnect' : 'connect');
    const kept = open();
    kept.write(request);
    await once(kept, 'data');

    const drained = drain();
    const onUnused = exchangeBytes(unused, request);
    const onKept = exchangeBytes(kept, request);
    closeNow(); // in the same turn: the gateway has read neither request
    t.same(statusAndConnection(await onUnused), [status, 'close'], 'first request of its connection');
    t.same(statusAndConnection(await onKept), [status, 'close'], 'request on a keep-alive connection');
    await drained;
  });
}

t.test('a client that connects as the drain closes connections has one second for its first request', async (t) => {
  const { gateway, drain, closeNow } = await startDraining(t);
  const drained = drain();
  const late = connect(gateway.https, gateway.ca);
  const silent = connect(gateway.https, gateway.ca);
  const mute = connect(gateway.https, null);
  const secured = Promise.all([once(late, 'secureConnect'), once(silent, 'secureConnect')]);
  const closed = Promise.all([once(silent.resume(), 'close'), once(mute.resume(), 'close')]);
  await Promise.all([late, silent, mute].map((socket) => once(socket, 'connect')));
  const begin = performance.now();
  closeNow();
  await secured;
  t.same(statusAndConnection(await exchangeBytes(late, request)), [200, 'close']);
  await closed;
  t.ok(performance.now() - begin > 900, 'not closed earlier');
  await drained;
});

// The tests call `turn` (setImmediate) before each stall. After such a stall, Node runs due timers before it reads
// sockets. So the timers of the drain fire before the gateway reads the request that arrived during the stall.
t.test('a first request that arrives while the process stalls gets its response', async (t) => {
  const { gateway, drain, closeNow } = await startDraining(t);
  const drained = drain();
  const late = connect(gateway.https, gateway.ca);
  const secured = once(late, 'secureConnect');
  await once(late, 'connect');
  closeNow();
  await secured;
  await t.rejects(refusedSoon(gateway.https), 'connections are no longer accepted');
  await turn();
  const last = exchangeBytes(late, request);
  stallProcess(1_500);
  t.same(statusAndConnection(await last), [200, 'close']);
  await drained;
});

t.test('a client that reads slowly gets the whole response during the drain', async (t) => {
  const size = 16_000_000;
  const { gateway, drain, closeNow } = await startDraining(t, { publicApi: `"${'a'.repeat(size)}"` });
  const slow = connect(gateway.https, gateway.ca);
  slow.write(request.replace('/v1/transactions', '/v1/openapi.json'));
  await once(slow, 'readable');
  const drained = drain();
  closeNow();
  await t.rejects(refusedSoon(gateway.https), 'connections are no longer accepted');
  let bytes = 0;
  slow.on('data', (chunk: Buffer) => (bytes += chunk.length)).resume();
  await once(slow, 'close');
  t.ok(bytes > size, `${bytes} bytes`);
  await drained;
  t.match(gateway.lines, [{ event: { code: 'accepted' } }]);
});

for (const [when, stalls] of [
  ['', false],
  [', even if the process stalls', true],
] as const) {
  t.test(`a response that promised keep-alive is followed by one more request and response${when}`, async (t) => {
    const { upstream, gateway, drain, closeNow } = await startDraining(t);
    let finish: () => void = () => undefined;
    const { respond } = upstream;
    const begun = new Promise<void>((resolve) => {
      upstream.respond = (_request, response) => {
        response.writeHead(200, { 'content-length': 4 }).write('ma');
        finish = () => response.end('de');
        resolve();
      };
    });
    const kept = connect(gateway.https, gateway.ca);
    let received = '';
    kept.on('data', (chunk: Buffer) => (received += chunk.toString()));
    const ends = async (end: string): Promise<void> => {
      while (!received.endsWith(end)) {
        if (kept.closed) throw new Error(`the connection was closed after ${received}`);
        await Promise.race([once(kept, 'data'), once(kept, 'close')]);
      }
    };
    kept.write(request);
    await begun;
    await ends('ma');
    t.notMatch(received, /connection: close/i);
    const drained = drain();
    closeNow();
    await t.rejects(refusedSoon(gateway.https), 'connections are no longer accepted');
    upstream.respond = respond;
    finish();
    await ends('made');
    await wait(20); // gives the gateway time to record the end of its response
    await turn();
    const last = exchangeBytes(kept, request);
    if (stalls) stallProcess(1_500);
    t.same(statusAndConnection(await last), [200, 'close']);
    await drained;
  });
}

t.test('a pipelined request that is slow gets its response during the drain', async (t) => {
  const { upstream, gateway, drain, closeNow } = await startDraining(t);
  let finish: () => void = () => undefined;
  upstream.respond = (_request, response) => {
    response.writeHead(200, { 'content-length': 4 }).write('ma');
    finish = () => response.end('de');
  };
  const kept = connect(gateway.https, gateway.ca);
  let received = '';
  kept.on('data', (chunk: Buffer) => (received += chunk.toString()));
  const closed = once(kept, 'close');
  kept.write(request + request);
  while (!received.endsWith('ma')) await once(kept, 'data');
  const drained = drain();
  closeNow();
  await t.rejects(refusedSoon(gateway.https), 'connections are no longer accepted');
  upstream.respond = (_request, response) => void setTimeout(() => response.end('slow'), 1_500);
  finish();
  await closed;
  t.match(received, /made[^]*connection: close[^]*slow$/i);
  await drained;
});

/** Connects to a port repeatedly. Rejects once a connection is refused; resolves if none is within a minute. */
async function refusedSoon(port: number): Promise<void> {
  const end = performance.now() + 60_000;
  while (performance.now() < end) {
    const socket = connect(port, null);
    await once(socket, 'connect');
    socket.destroy();
    await wait(20);
  }
}
