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
    const answer = await app.inject(url);
    t.equal(answer.statusCode, status);
    t.same(answer.json(), { success: false, message, data: { code, errors: [] } });
    t.equal(answer.headers['retry-after'], status === 503 ? '1' : undefined);
    t.equal(answer.headers['cache-control'], 'no-store');
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
    const answer = await app.inject({ method: 'POST', url, payload: '{', headers: { 'content-type': 'text/plain' } });
    t.equal(answer.statusCode, 403, url);
  }
});

t.test('a path that cannot be decoded is 400, with no-store too', async (t) => {
  const app = createRestApp({ admit: () => undefined });
  t.teardown(() => app.close());
  const answer = await app.inject('/%zz');
  t.equal(answer.statusCode, 400);
  t.same(answer.json(), { success: false, message: 'Bad request', data: { code: 'bad_request', errors: [] } });
  t.equal(answer.headers['cache-control'], 'no-store');
});
