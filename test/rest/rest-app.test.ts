import type { AddressInfo } from 'node:net';
import { connect } from 'node:net';
import t from 'tap';
import { OperatorError } from '../../src/config/operator-error.js';
import { Refusal } from '../../src/rest/refusal.js';
import { createRestApp } from '../../src/rest/rest-app.js';
import Type from '../../src/typebox/typebox.js';

t.test('an operator error is a 503, an unexpected error a 500, and neither response has the reason', async (t) => {
  const logged: string[] = [];
  const logger = { error: (_details: object, message: string) => void logged.push(message) };
  const app = createRestApp({ logger, admit: () => undefined });
  t.teardown(() => app.close());
  app.get('/away', () => Promise.reject(new OperatorError('The PostgreSQL database x at db.internal cannot be used.')));
  app.get('/broken', () => Promise.reject(new Error('undefined is not a function')));
  app.get('/refused', () => Promise.reject(new Refusal(409, 'It is in another state')));
  for (const [url, status, message, code] of [
    ['/away', 503, 'Service unavailable', 'service_unavailable'],
    ['/broken', 500, 'Internal error', 'internal_error'],
    ['/refused', 409, 'It is in another state', 'conflict'],
  ] as const) {
    const response = await app.inject(url);
    t.equal(response.statusCode, status);
    t.same(response.json(), { success: false, message, data: { code, errors: [] } });
    t.equal(response.headers['retry-after'], status === 503 ? '1' : undefined);
    t.equal(response.headers['cache-control'], 'no-store');
  }
  t.equal(logged.length, 2, 'a refusal is not logged as a failure');
});

t.test('a client that is not admitted gets its response before routing and before its body is read', async (t) => {
  const app = createRestApp({
    admit: (one) => {
      one.addHook('onRequest', (_request, _reply, done) => {
        done(new Refusal(403, 'Forbidden'));
      });
    },
  });
  t.teardown(() => app.close());
  app.post('/here', { schema: { body: Type.Object({}) } }, () => null);
  for (const url of ['/here', '/nowhere']) {
    const response = await app.inject({ method: 'POST', url, payload: '{', headers: { 'content-type': 'text/plain' } });
    t.equal(response.statusCode, 403, url);
  }
});

t.test(
  'a POST to a route without a body is accepted with the content type that curl sends for an empty body',
  async (t) => {
    const app = createRestApp({ admit: () => undefined });
    t.teardown(() => app.close());
    app.post('/revoke', () => ({ revoked: true }));
    const headers = { 'content-type': 'application/x-www-form-urlencoded', 'content-length': '0' };
    const response = await app.inject({ method: 'POST', url: '/revoke', headers });
    t.equal(response.statusCode, 200);
    t.same(response.json(), { revoked: true });
  },
);

t.test('a path that cannot be decoded is 400, with no-store too', async (t) => {
  const app = createRestApp({ admit: () => undefined });
  t.teardown(() => app.close());
  const response = await app.inject('/%zz');
  t.equal(response.statusCode, 400);
  t.same(response.json(), { success: false, message: 'Bad request', data: { code: 'bad_request', errors: [] } });
  t.equal(response.headers['cache-control'], 'no-store');
});

t.test('a client that is still sending a rejected request can read the response', async (t) => {
  const oversized: (string | null)[] = [];
  const app = createRestApp({ admit: () => undefined, onOversized: (address) => void oversized.push(address) });
  t.teardown(() => app.close());
  await app.listen({ host: '127.0.0.1', port: 0 });
  const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
  const errors: Error[] = [];
  socket.on('error', (error) => errors.push(error));
  const closed = new Promise((resolve) => socket.once('close', resolve));
  let received = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    // More than the kernel can buffer, so that the write completes only if the server reads.
    if (received === '') socket.write('x'.repeat(16_000_000));
    received += chunk;
  });
  socket.write(`GET / HTTP/1.1\r\nx: ${'x'.repeat(20_000)}`);
  await closed;
  t.match(received, /^HTTP\/1\.1 431 [^]*\{"success":false,/);
  t.same(errors, [], 'the connection is not reset');
  t.same(oversized, ['127.0.0.1'], 'the request is reported once');
});
