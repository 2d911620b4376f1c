import t from 'tap';
import { registryFixture } from '../registry/registry-fixture.js';
import { merchantA, servicesFixture } from '../services/services-fixture.js';

// Fastify itself answers for a path parameter of more than 100 characters, before any hook: whoever asked was told 500, with an
// error in the log, where a path that there is not was 401 or 403. That told strangers the paths, and rang alarms.
const ids = ['a'.repeat(101), '1'.repeat(101), 'a'.repeat(15_000)];

t.test('an id that is too long to be one shows strangers no path of the admin API, and is nobody’s', async (t) => {
  const { app, call, logged } = await registryFixture(t, 'sqlite::memory:');
  const stranger = await app.inject('/nothing');
  for (const id of ids) {
    for (const [method, path, body] of [
      ['GET', `/merchants/${id}`, undefined],
      ['PATCH', `/merchants/${id}`, { name: 'x' }],
      ['POST', `/merchants/${id}/keys`, { environment: 'live' }],
      ['POST', `/keys/${id}/revoke`, undefined],
      ['GET', `/nothing/${id}`, undefined],
    ] as const) {
      const answer = await app.inject({ method, url: path });
      t.equal(answer.statusCode, 401, `${method} without the token`);
      t.equal(answer.body, stranger.body);
      t.equal((await call(method, path, { body })).status, 404, `${method} with it`);
    }
  }
  t.same(logged, []);
});

t.test('nor one of the services', async (t) => {
  const { call, logged } = await servicesFixture(t);
  for (const id of ids) {
    for (const list of [
      '/transactions',
      '/dev/transactions',
      '/dev/payouts',
      '/dev/wallets',
      '/dev/customers',
      '/no',
    ]) {
      t.equal((await call(null, 'GET', `${list}/${id}`)).status, 403, list);
      t.equal((await call(merchantA, 'GET', `${list}/${id}`)).status, 404, list);
    }
  }
  t.same(logged, []);
});
