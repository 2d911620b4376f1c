import { setImmediate as turn } from 'node:timers/promises';
import t from 'tap';
import { liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import { connectHttp2, fetchHttp2 } from '../http/http2-client.js';

// A service that sent a header twice which HTTP/2 allows but once, in front of an answer that did not come at once, ended
// the process: Node throws when the head is written, and that was done in an event that nobody stood behind.
t.test('a header that HTTP/2 refuses is a 502, and the rest of its answer is not waited for', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const session = connectHttp2(t, gateway);
  for (const milliseconds of [0, 20]) {
    upstream.respond = (_request, response) => {
      response.setHeader('etag', ['"a"', '"b"']).setHeader('content-length', 1_000_000);
      response.flushHeaders();
      setTimeout(() => response.write('the first piece'), milliseconds);
    };
    const { headers, body } = await fetchHttp2(session, { ':path': '/v1/transactions', 'x-api-key': liveKey });
    t.match({ ...headers, body }, { ':status': 502, etag: undefined, body: /"message":"Bad gateway"/ });
    while (upstream.sockets.size > 0 || gateway.lines.length === 0) await turn();
    t.match(gateway.lines.splice(0), [{ event: { code: 'upstream_failed', reason: /the answer broke off/ } }]);
  }
  upstream.respond = (_request, response) => response.setHeader('etag', ['"a"', '"b"']).end('whole');
  const { headers } = await fetchHttp2(session, { ':path': '/v1/transactions', 'x-api-key': liveKey });
  t.equal(headers[':status'], 502);
  t.same(gateway.internalErrors, []);
});

// Node does not take back a Date that it has refused: the answer that told of that was refused as well, and ended the process.
t.test('a Date that comes twice is a 502 over HTTP/2, or one where both are the same', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const session = connectHttp2(t, gateway);
  const one = 'Thu, 01 Jan 2026 00:00:00 GMT';
  const other = 'Thu, 01 Jan 2026 00:00:01 GMT';
  for (const pieces of [['whole'], ['in ', 'pieces']]) {
    const ask = async (headers: Readonly<Record<string, string[]>>) => {
      upstream.respond = (_request, response) => {
        for (const [name, values] of Object.entries(headers)) response.setHeader(name, values);
        response.write(pieces[0]);
        setTimeout(() => response.end(pieces[1]), pieces.length > 1 ? 20 : 0);
      };
      return fetchHttp2(session, { ':method': 'POST', ':path': '/v1/payouts', 'x-api-key': liveKey });
    };
    const refused = await ask({ date: [one, other] });
    t.match(refused.headers, { ':status': 502, date: /GMT$/ });
    t.match(gateway.lines.splice(0), [{ event: { code: 'upstream_failed' } }]);
    const nosniff = { 'x-content-type-options': ['nosniff', 'nosniff'] };
    const same = await ask({ date: [one, one], ...nosniff, 'content-language': ['en', 'de'], 'x-a': ['1', '1'] });
    t.equal(same.body, pieces.join(''));
    const said = { 'x-content-type-options': 'nosniff', 'content-language': 'en, de', 'x-a': '1, 1' };
    t.match(same.headers, { ':status': 200, date: one, ...said });
    t.match(gateway.lines.splice(0), [{ event: { code: 'accepted' } }]);
  }
  t.same(gateway.internalErrors, []);
});
