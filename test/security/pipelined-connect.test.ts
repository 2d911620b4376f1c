import { setImmediate } from 'node:timers/promises';
import t from 'tap';
import {
  ask,
  connect,
  exchangeBytes,
  liveKey,
  requestBytes,
  startTestGateway,
  startUpstream,
} from '../edge/harness.js';

// A CONNECT behind a request that was still owed its answer was an uncaught exception: anybody, without a key, could end
// the process with two lines.
const open = (bytes: string): string => bytes.replace('Connection: close\r\n', '');
const plain = open(requestBytes({ headers: [] }));
const withKey = open(requestBytes({ headers: [['x-api-key', liveKey]] }));
const tunnel = 'CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n';

t.test('CONNECT behind another request waits for its turn, and the process lives', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const rows: readonly (readonly [string, readonly string[]])[] = [
    [plain + tunnel, ['401', '401']],
    [withKey + tunnel, ['200', '401']],
    [withKey + plain + tunnel, ['200', '401', '401']],
    [withKey + tunnel + tunnel, ['200', '401']],
    [requestBytes({ headers: [['x-api-key', liveKey]] }) + tunnel, ['200']],
    [tunnel + plain, ['401']],
  ];
  for (const [bytes, statuses] of rows) {
    gateway.lines.length = 0;
    const received = await exchangeBytes(connect(gateway.https, gateway.ca), bytes);
    t.same(
      [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => status),
      statuses,
    );
    t.equal(gateway.lines.length, statuses.length);
  }
});

t.test('CONNECT behind a request whose caller leaves is forgotten with it', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const arrived = new Promise<void>((resolve) => {
    upstream.respond = () => {
      resolve();
    };
  });
  const socket = connect(gateway.https, gateway.ca);
  socket.on('error', () => undefined);
  socket.write(withKey + tunnel);
  await arrived;
  socket.destroy();
  while (gateway.lines.length === 0) await setImmediate();
  t.equal((await ask(gateway, {})).status, 401);
  t.match(gateway.lines, [{ event: { code: 'client_closed' } }, { event: { code: 'key_required' } }]);
});
