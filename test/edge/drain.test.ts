import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import {
  connect,
  exchangeBytes,
  liveKey,
  parseAnswer,
  requestBytes,
  startTestGateway,
  startUpstream,
} from './harness.js';

const request = requestBytes({ headers: [['x-api-key', liveKey]] }).replace('Connection: close\r\n', '');

/** A gateway whose drain delay ends when `closeNow` is called. */
async function startDraining(t: Parameters<typeof startTestGateway>[0]) {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits: { drainTimeoutSeconds: 30 } },
  });
  let closeNow: () => void = () => undefined;
  const delay = new Promise<void>((resolve) => {
    closeNow = resolve;
  });
  return { upstream, gateway, drain: () => gateway.drain(delay), closeNow };
}

const answered = (received: string): unknown => {
  const answer = parseAnswer(received);
  return [answer.status, answer.header('connection')];
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
    answered(await exchangeBytes(kept, request)),
    [200, 'close'],
    'a connection that was open gets one more response',
  );
  t.same(
    answered(await exchangeBytes(connect(gateway.https, gateway.ca), request)),
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
    t.same(answered(await onUnused), [status, 'close'], 'first request of its connection');
    t.same(answered(await onKept), [status, 'close'], 'request on a keep-alive connection');
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
  t.same(answered(await exchangeBytes(late, request)), [200, 'close']);
  await closed;
  t.ok(performance.now() - begin > 900, 'not closed earlier');
  await drained;
});

t.test('a response that promised keep-alive is followed by one more request and response', async (t) => {
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
  t.same(answered(await exchangeBytes(kept, request)), [200, 'close']);
  await drained;
});

/** Resolves while a port accepts connections; rejects once it refuses them. */
async function refusedSoon(port: number): Promise<void> {
  const end = performance.now() + 5_000;
  while (performance.now() < end) {
    const socket = connect(port, null);
    await once(socket, 'connect');
    socket.destroy();
    await wait(20);
  }
}
