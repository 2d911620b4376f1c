import t from 'tap';
import { connect, liveKey, requestBytes, startTestGateway, startUpstream } from '../edge/harness.js';

// A refused upload is closed with a delay. What came on the connection in that time was still carried out, though its
// answer could never be given (RFC 9112 9.6).
t.test('nothing is carried out behind an answer that closes its connection', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const payout = requestBytes({ method: 'POST', path: '/v1/payouts', body: '{}', headers: [['x-api-key', liveKey]] });
  for (const port of [gateway.http, gateway.https]) {
    const socket = connect(port, port === gateway.https ? gateway.ca : null);
    socket.allowHalfOpen = true;
    socket.on('error', () => undefined);
    const answered = new Promise((resolve) => socket.once('data', resolve));
    socket.write(
      'POST /v1/payouts HTTP/1.1\r\nHost: a\r\nx-api-key: svc_live_wrong\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n',
    );
    await answered;
    socket.write(`0\r\n\r\n${payout}`);
    const lines = port === gateway.http ? 2 : 4;
    while (gateway.lines.length < lines) await new Promise((resolve) => setImmediate(resolve));
    socket.destroy();
  }
  t.same(upstream.seen, []);
  t.same(
    gateway.lines.map((line) => (line.event as { code: string }).code),
    ['https_required', 'client_closed', 'key_unknown', 'client_closed'],
  );
});
