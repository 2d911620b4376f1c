import t from 'tap';
import { connect, liveKey, startBareUpstream, startTestGateway } from '../http/harness.js';

// Behind a proxy that asks by HTTP/1.0, as nginx does unless it is told otherwise, a part of a list of payouts was a whole answer.
t.test('an answer that breaks off does not end as a whole one does', async (t) => {
  const url = await startBareUpstream(t, (socket) => {
    socket
      .on('error', () => undefined)
      .on('data', () => {
        socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2,\r\n');
        setTimeout(() => socket.resetAndDestroy(), 300);
      });
  });
  const gateway = await startTestGateway(t, { upstreamUrl: url, config: { trustedProxies: ['127.0.0.1'] } });
  for (const version of ['1.0', '1.1']) {
    const socket = connect(gateway.http, null);
    let received = '';
    let ending = 'end';
    socket.on('data', (bytes: Buffer) => (received += bytes.toString('latin1')));
    socket.on('error', ({ code }: NodeJS.ErrnoException) => (ending = code ?? ''));
    socket.write(
      `GET /v1/transactions HTTP/${version}\r\nHost: localhost\r\nx-forwarded-proto: https\r\nx-api-key: ${liveKey}\r\n\r\n`,
    );
    await new Promise<unknown>((resolve) => socket.once('close', resolve));
    t.match(received, /^HTTP\/1\.1 200 /);
    t.match(received, '[1,2,');
    const isWhole = version === '1.0' ? ending === 'end' : received.endsWith('0\r\n\r\n');
    t.equal(isWhole, false, `HTTP/${version}: ${ending}`);
    t.match(gateway.lines.splice(0), [{ event: { code: 'upstream_failed' } }]);
  }
});

t.test('nor does one that a drain cuts off', async (t) => {
  const url = await startBareUpstream(t, (socket) => {
    socket
      .on('error', () => undefined)
      .on('data', () => {
        socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2,\r\n');
      });
  });
  const gateway = await startTestGateway(t, { upstreamUrl: url, config: { trustedProxies: ['127.0.0.1'] } });
  const socket = connect(gateway.http, null);
  const head = 'GET /v1/transactions HTTP/1.0\r\nHost: localhost\r\nx-forwarded-proto: https\r\n';
  socket.write(`${head}x-api-key: ${liveKey}\r\n\r\n`);
  await new Promise((resolve) => socket.once('data', resolve));
  const ending = new Promise((resolve) => {
    socket.once('error', resolve).once('end', () => {
      resolve('end');
    });
  });
  await gateway.drain();
  t.match(await ending, { code: 'ECONNRESET' });
});
