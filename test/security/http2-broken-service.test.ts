import t from 'tap';
import { liveKey, startBareUpstream, startTestGateway, startUpstream } from '../http/harness.js';
import { connectHttp2, fetchHttp2 } from '../http/http2-client.js';

const half = 'HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\nhalf an answer';
/** More than a client may waste at once. */
const many = 300;
const internalError = 2;

// Each answer that a service broke off was counted as a request that its caller had taken back: the connection was cut off,
// and the merchant's payouts on it with it, of which nobody knew then whether they were made.
t.test('a service that breaks off its answers does not cut off its callers', async (t) => {
  const broken = await startBareUpstream(t, (socket) => {
    socket
      .on('error', () => undefined)
      .once('data', () => {
        socket.write(half, () => setTimeout(() => socket.destroy(), 5));
      });
  });
  const upstream = await startUpstream(t);
  const answers: (() => void)[] = [];
  upstream.respond = (_request, response) => answers.push(() => response.end('paid'));
  const config = { upstreams: { transactions: { url: broken } } };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  const session = connectHttp2(t, gateway);
  const goaways: number[] = [];
  session.on('goaway', (code: number) => goaways.push(code));
  const cutOff = new Promise((resolve) => session.once('close', resolve));
  const ask = { ':path': '/v1/transactions', 'x-api-key': liveKey };
  const payout = fetchHttp2(session, { ...ask, ':method': 'POST', ':path': '/v1/payouts' }, '{}').catch(String);
  const codes = new Set<number>();
  const askOften = async (): Promise<void> => {
    for (let count = 0; count < many / 10 && !session.closed; count += 1) {
      const stream = session.request(ask);
      stream.on('error', () => undefined).resume();
      await new Promise((resolve) => stream.once('close', resolve));
      codes.add(stream.rstCode);
    }
  };
  await Promise.race([Promise.all(Array.from({ length: 10 }, askOften)), cutOff]);
  for (const answer of answers) answer();
  t.match(await Promise.race([payout, cutOff]), { headers: { ':status': 200 }, body: /^paid$/ });
  t.strictSame([...codes], [internalError], 'each was reset, as half of an answer is none');
  t.strictSame(goaways, []);
});
