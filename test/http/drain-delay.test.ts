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
