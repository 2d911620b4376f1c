import net from 'node:net';
import t from 'tap';
import { startServices } from '../../src/services/start-services.js';
import { ManualTime } from '../registry/manual-time.js';

// Request smuggling: the chart and `dev` set `upstreams.*.readsBodies` for these services, so merchants share
// connections. No byte of a body may be parsed as a request, even if the response precedes the body.

const time = new ManualTime();
const parts = { assertions: null, clock: time, timers: time, bank: { delayMilliseconds: 1000, failingAccounts: [] } };
const merchant = 'x-merchant-id: merchant_a\r\nx-merchant-environment: live\r\n';
const json = 'content-type: application/json\r\n';
/** A smuggled request; its response, 404, must not reach another request. */
const forged = `GET /forged HTTP/1.1\r\nhost: localhost\r\n${merchant}\r\n`;

/** Every way to reject a request before its body is read, and the cases in which the body is read. */
const cases: readonly (readonly [name: string, line: string, headers: string, status: number])[] = [
  ['without an identity', 'POST /payouts', json, 403],
  ['with an invalid identity', 'POST /payouts', `${json}x-merchant-id: a b\r\nx-merchant-environment: live\r\n`, 403],
  ['for an unknown path', 'POST /nowhere', merchant + json, 404],
  ['for a path without this method', 'DELETE /payouts', merchant + json, 405],
  ['a GET with a body', 'GET /transactions', merchant, 200],
  ['without a type', 'POST /payouts', merchant, 415],
  ['of another type', 'POST /payouts', `${merchant}content-type: text/plain\r\n`, 415],
  ['compressed', 'POST /payouts', `${merchant}${json}content-encoding: gzip\r\n`, 415],
  ['that is not JSON', 'POST /payouts', merchant + json, 422],
  ['with an invalid Idempotency-Key', 'POST /payouts', `${merchant}${json}idempotency-key: \x7f\r\n`, 400],
];

/** Sends bytes; resolves with the statuses of all responses until the connection closes. */
function statusesOf(url: string, bytes: string): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const socket = net.connect(Number(port), hostname);
    let received = '';
    // After its response, the server may close the connection while it has not read the whole body.
    socket.setEncoding('latin1').on('error', (error) => {
      if (received === '') reject(error);
    });
    socket.on('data', (text: string) => (received += text));
    socket.on('close', () => {
      resolve([...received.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status = '']) => status));
    });
    socket.write(bytes, 'latin1');
  });
}

t.test('a request body is never parsed as a request, however early the response is sent', async (t) => {
  const services = await startServices({ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', ...parts });
  t.teardown(() => services.close());
  const last = `GET /transactions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n${merchant}\r\n`;
  let closed = 0;
  for (const [name, line, headers, status] of cases) {
    for (const body of [forged, forged.slice(0, 30), forged.repeat(500)]) {
      const head = `${line} HTTP/1.1\r\nhost: localhost\r\n${headers}`;
      const framed = `${head}content-length: ${body.length}\r\n\r\n${body}`;
      const chunked = `${head}transfer-encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
      for (const request of [framed, chunked]) {
        const [first, ...others] = await statusesOf(services.url, request + last);
        t.equal(first, String(status), `${name}, ${body.length} bytes`);
        // The server may also close the connection after the first response: no other merchant uses it then.
        if (others.length > 0)
          t.same(others, ['200'], `${name}, ${body.length} bytes: the next request gets its own response`);
        else closed += 1;
      }
    }
  }
  t.ok(closed < cases.length * 6, `${closed} of ${cases.length * 6} connections closed after the first response`);
});
