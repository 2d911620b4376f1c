import { once } from 'node:events';
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
import { endStream, FrameConnection, headersFrames, requestFields } from './http2-frames.js';

const request = requestBytes({ headers: [['x-api-key', liveKey]] }).replace('Connection: close\r\n', '');

t.test('in the delay of a drain connections are taken, and each ends with its answer and not before', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });

  const kept = connect(gateway.https, gateway.ca);
  const first = await new Promise<string>((resolve) => {
    kept.once('data', (chunk: Buffer) => {
      resolve(chunk.toString());
    });
    kept.write(request);
  });
  t.notMatch(first, /connection: close/i, 'before, it is kept');

  let endDelay: () => void = () => undefined;
  const drained = gateway.drain(
    new Promise<void>((resolve) => {
      endDelay = resolve;
    }),
  );
  const ready = await fetch(`http://127.0.0.1:${gateway.management}/readyz`);
  t.match([ready.status, await ready.json()], [503, { status: 'not ready', problems: ['draining'] }]);

  const onKept = parseAnswer(await exchangeBytes(kept, request));
  t.same([onKept.status, onKept.header('connection')], [200, 'close'], 'what was kept is answered once more');
  const onNew = parseAnswer(await exchangeBytes(connect(gateway.https, gateway.ca), request));
  t.same([onNew.status, onNew.header('connection')], [200, 'close'], 'and so is who comes late');

  const idle = connect(gateway.https, gateway.ca);
  await once(idle, 'secureConnect');
  const idleClosed = once(idle, 'close');
  idle.on('error', () => undefined);
  endDelay();
  await drained;
  await idleClosed;
  await t.rejects(exchangeBytes(connect(gateway.https, gateway.ca), request), 'after it nobody is taken');
});

t.test('in that delay HTTP/2 connections are told to go away with their next answer, and not before', async (t) => {
  const key = ['x-api-key', liveKey] as const;
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const open = (): FrameConnection => new FrameConnection(gateway.https, gateway.ca);
  /** The last request of which GOAWAY says that it was taken, and GOAWAY's error. */
  const lastTaken = ({ frames }: FrameConnection): readonly (readonly number[])[] =>
    frames.flatMap(({ type, payload }) =>
      type === 'goaway' ? [[payload.readUInt32BE(0), payload.readUInt32BE(4)]] : [],
    );

  const [kept, idle] = [open(), open()];
  for (const one of [kept, idle]) {
    one.ask(1, 'GET', '/v1/transactions', [key]);
    await one.until(() => one.isOver(1));
  }
  let endDelay: () => void = () => undefined;
  const drained = gateway.drain(
    new Promise<void>((resolve) => {
      endDelay = resolve;
    }),
  );
  // Two at once: the first is told to be the last, so the second one may be sent elsewhere.
  const seen = upstream.seen.length;
  kept.send(
    ...[3, 5].map((stream) => headersFrames(stream, endStream, requestFields('GET', '/v1/transactions', [key]))),
  );
  await kept.untilClosed();
  t.match(kept.body(3), '"success":true');
  t.same(new Set(lastTaken(kept).map(String)), new Set(['3,0']));
  t.equal(upstream.seen.length, seen + 1, 'what is called not taken was not taken');
  const goaway = kept.frames.findIndex(({ type }) => type === 'goaway');
  const answer = kept.frames.findIndex(({ type, stream }) => type === 'headers' && stream === 3);
  t.ok(goaway < answer, 'it is told before the answer, so that nobody asks again meanwhile');

  const late = open();
  late.ask(1, 'GET', '/v1/transactions', [key]);
  await late.untilClosed();
  t.match(late.body(1), '"success":true', 'who comes late is answered');
  t.same(lastTaken(idle), [], 'a request that is under way meets an open connection');
  endDelay();
  await idle.untilClosed();
  t.same(lastTaken(idle)[0], [1, 0], 'after the delay the idle ones are told as well');
  await drained;
});
