import type { Socket } from 'node:net';
import t from 'tap';
import { connect, liveKey, startBareUpstream, startTestGateway } from '../edge/harness.js';
import type { GatewayUnderTest, Teardown } from '../edge/harness.js';

/** A gateway before a service that begins its answers, and then does this. */
async function startBefore(t: Teardown, then: (socket: Socket) => void): Promise<GatewayUnderTest> {
  const upstreamUrl = await startBareUpstream(t, (socket) => {
    socket.on('error', () => undefined);
    socket.on('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2,\r\n');
      then(socket);
    });
  });
  return startTestGateway(t, { upstreamUrl, config: { trustedProxies: ['127.0.0.1'] } });
}

function ask(gateway: GatewayUnderTest, version: string): Socket {
  const socket = connect(gateway.http, null);
  const head = `GET /v1/transactions HTTP/${version}\r\nHost: localhost\r\nx-forwarded-proto: https\r\n`;
  socket.write(`${head}x-api-key: ${liveKey}\r\n\r\n`);
  return socket;
}

// Behind a proxy that asks by HTTP/1.0, as nginx does unless it is told otherwise, a part of a list of payouts was a whole answer.
t.test('an answer that breaks off does not end as a whole one does', async (t) => {
  const gateway = await startBefore(t, (service) => {
    setTimeout(() => service.resetAndDestroy(), 300);
  });
  for (const version of ['1.0', '1.1']) {
    const socket = ask(gateway, version);
    let received = '';
    let ending = 'end';
    socket.on('data', (bytes: Buffer) => (received += bytes.toString('latin1')));
    socket.on('error', ({ code }: NodeJS.ErrnoException) => (ending = code ?? ''));
    await new Promise<unknown>((resolve) => socket.once('close', resolve));
    t.match(received, /^HTTP\/1\.1 200 /);
    t.match(received, '[1,2,');
    const isWhole = version === '1.0' ? ending === 'end' : received.endsWith('0\r\n\r\n');
    t.equal(isWhole, false, `HTTP/${version}: ${ending}`);
    t.match(gateway.lines.splice(0), [{ event: { code: 'upstream_failed' } }]);
  }
});

t.test('nor does one that a drain cuts off', async (t) => {
  const gateway = await startBefore(t, () => undefined);
  const socket = ask(gateway, '1.0');
  await new Promise((resolve) => socket.once('data', resolve));
  const ending = new Promise((resolve) => {
    socket.once('error', resolve).once('end', () => {
      resolve('end');
    });
  });
  await gateway.drain();
  t.match(await ending, { code: 'ECONNRESET' });
});
