import { METHODS } from 'node:http';
import t from 'tap';
import { Refusal } from '../../src/rest/refusal.js';
import { createRestApp, createServer, idParams, serveJson } from '../../src/rest/rest-app.js';
import Type from '../../src/typebox/typebox.js';

function appOf(isAdmitted: () => boolean) {
  const app = createRestApp({
    admit: (one) => {
      one.addHook('onRequest', (_request, _reply, done) => {
        done(isAdmitted() ? undefined : new Refusal(403, 'Forbidden'));
      });
    },
  });
  app.get('/records', () => 'list');
  app.post('/records', { schema: { body: Type.Object({}) } }, () => 'made');
  app.get('/records/:id', { schema: { params: idParams } }, () => 'one');
  app.delete('/records/:id', { schema: { params: idParams } }, () => 'gone');
  app.post('/orders', { schema: { body: Type.Object({}) } }, () => 'ordered');
  return app;
}

const allowed: readonly (readonly [path: string, allow: string])[] = [
  ['/records', 'GET, HEAD, POST'],
  ['/records/1', 'DELETE, GET, HEAD'],
  ['/records/a%20b', 'DELETE, GET, HEAD'],
  ['/orders', 'POST'],
  ['/orders?page=1', 'POST'],
];

t.test('a method that a path does not support is 405, and allow lists the supported ones', async (t) => {
  const app = appOf(() => true);
  t.teardown(() => app.close());
  for (const [url, allow] of allowed) {
    for (const method of METHODS.filter((one) => one !== 'CONNECT')) {
      const response = await app.inject({ method: method, url });
      if (allow.split(', ').includes(method)) {
        t.not(response.statusCode, 405, `${method} ${url}`);
        continue;
      }
      t.equal(response.statusCode, 405, `${method} ${url}`);
      t.equal(response.headers.allow, allow, `${method} ${url}`);
      if (method === 'HEAD') t.equal(response.body, '');
      else {
        t.same(response.json(), {
          success: false,
          message: `Method not allowed: this path takes ${allow}`,
          data: { code: 'method_not_allowed', errors: [] },
        });
      }
    }
  }
});

t.test('an unknown path is 404 for any method, without an allow header', async (t) => {
  const app = appOf(() => true);
  t.teardown(() => app.close());
  for (const url of ['/', '/record', '/records/1/2', '/RECORDS']) {
    for (const method of ['GET', 'PUT', 'OPTIONS', 'PROPFIND']) {
      const response = await app.inject({ method: method, url });
      t.equal(response.statusCode, 404, `${method} ${url}`);
      t.equal(response.headers.allow, undefined);
      t.same(response.json(), {
        success: false,
        message: 'Route not found',
        data: { code: 'route_not_found', errors: [] },
      });
    }
  }
});

t.test('the method is checked before the body: another media type, or no body, changes nothing', async (t) => {
  const app = appOf(() => true);
  t.teardown(() => app.close());
  for (const [url, status] of [
    ['/records', 405],
    ['/nowhere', 404],
  ] as const) {
    for (const headers of [{}, { 'content-type': 'text/plain' }, { 'content-type': 'application/json' }]) {
      const response = await app.inject({ method: 'PUT', url, headers, payload: '{' });
      t.equal(response.statusCode, status, `${url} ${JSON.stringify(headers)}`);
    }
  }
});

t.test('a client that is not admitted learns neither paths nor methods', async (t) => {
  const app = appOf(() => false);
  t.teardown(() => app.close());
  for (const url of ['/records', '/orders', '/nowhere']) {
    for (const method of ['GET', 'PUT', 'OPTIONS', 'PROPFIND']) {
      const response = await app.inject({ method: method, url });
      t.equal(response.statusCode, 403, `${method} ${url}`);
      t.equal(response.headers.allow, undefined);
      t.same(response.json(), { success: false, message: 'Forbidden', data: { code: 'forbidden', errors: [] } });
    }
  }
});

t.test('a part of an app with a prefix rejects wrong methods and unknown paths in the same way', async (t) => {
  const app = createServer({});
  void app.register(
    (scope, _options, done) => {
      const api = serveJson(scope, () => undefined);
      api.setNotFoundHandler(() => null);
      api.get('/records/:id', { schema: { params: idParams } }, () => 'one');
      done();
    },
    { prefix: '/api' },
  );
  t.teardown(() => app.close());
  const wrong = await app.inject({ method: 'PUT', url: '/api/records/1' });
  t.equal(wrong.statusCode, 405);
  t.equal(wrong.headers.allow, 'GET, HEAD');
  t.equal((await app.inject({ method: 'PUT', url: '/records/1' })).statusCode, 404);
  t.equal((await app.inject({ method: 'GET', url: '/api/records' })).statusCode, 404);
});
