import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { startHastyService } from '../fuzz/hasty-service.js';
import { liveKey, startTestGateway } from '../http/harness.js';
import { connectHttp2 } from '../http/http2-client.js';

// What came of a body behind its answer was not read. Such a request was never over: it had no line in the access log, also
// when its client had left, and behind a hundred of them the connection took no more.
t.test('over HTTP/2 each request that is answered before its body has come is over with its body', async (t) => {
  const service = await startHastyService(t);
  const gateway = await startTestGateway(t, { upstreamUrl: service.url });
  const session = connectHttp2(t, gateway);
  const uploads = 130; // more than a connection may carry at the same time
  const statuses: unknown[] = [];
  for (let count = 0; count < uploads; count += 1) {
    const headers = { 'x-api-key': liveKey, 'x-answer': 'early', 'content-length': '40000' };
    const stream = session.request({ ':method': 'POST', ':path': '/v1/payouts', ...headers });
    stream.on('error', () => undefined).write(Buffer.alloc(20_000, 0x61));
    const answer = new Promise((resolve) => {
      stream.once('response', (fields) => {
        resolve(fields[':status']);
      });
    });
    statuses.push(await Promise.race([answer, wait(3_000, 'no answer')]));
    stream.resume().end(Buffer.alloc(20_000, 0x61));
    if (statuses.at(-1) !== 200) break;
  }
  t.same([...new Set(statuses)], [200], `${statuses.length} uploads`);
  for (const end = Date.now() + 5_000; gateway.lines.length < statuses.length && Date.now() < end;) await wait(5);
  t.equal(gateway.lines.length, uploads, 'each has its line');
});
