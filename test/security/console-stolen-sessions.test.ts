import t from 'tap';
import { consoleFixture, sessionIn } from '../console/console-fixture.js';

const minute = 60_000;

t.test('session fixation: a cookie from before the sign-in gets no rights', async (t) => {
  const { ask, createPerson, createLink, enter } = await consoleFixture(t, 'sqlite::memory:');
  const { token } = await createPerson('ada', ['support']);
  const planted = 'A'.repeat(43);
  const session = sessionIn(await enter(await createLink(token), planted));
  t.not(session, planted);
  t.equal((await ask('GET', '/console/api/me', { session: planted })).status, 401);
  t.equal((await ask('GET', '/console/api/me', { session })).status, 200);
});

t.test('the former session of a browser ends when somebody signs in again', async (t) => {
  const { ask, createPerson, createLink, enter, signIn } = await consoleFixture(t, 'sqlite::memory:');
  const [ada, bea] = [await createPerson('ada', ['owner']), await createPerson('bea', ['support'])];
  const former = await signIn(ada.token);
  const session = sessionIn(await enter(await createLink(bea.token), former));
  t.match((await ask<{ name: string }>('GET', '/console/api/me', { session })).body.data, { name: 'bea' });
  t.equal((await ask('GET', '/console/api/me', { session: former })).status, 401);
});

t.test('an open browser is not enough to get a key, a token or another link', async (t) => {
  const { ask, createPerson, signIn, createMerchant, createKey, time, eventsOf } = await consoleFixture(
    t,
    'sqlite::memory:',
  );
  const { token } = await createPerson('olu', ['owner']);
  const session = await signIn(token);
  const { id } = await createMerchant();
  const { keyId } = await createKey(id);
  const secrets = [
    [`/merchants/${id}/keys`, { environment: 'test' }],
    [`/keys/${keyId}/reset`, {}],
    ['/tokens', { name: 'mine' }],
    ['/console-links', { administrator: 'olu' }],
  ] as const;
  time.advance(10 * minute);
  for (const [at, body] of secrets) {
    const { status, body: shown } = await ask('POST', `/console/api${at}`, { session, body });
    t.match([status, shown.data.code], [403, 'identity_not_proven'], at);
  }
  t.equal((await ask('POST', `/console/api/keys/${keyId}/revoke`, { session })).status, 200, 'revoking needs no proof');
  t.match(
    await eventsOf('attempt.refused'),
    secrets.map(() => ({ after: { needs: 'a recent proof of identity' } })),
  );
  const fresh = await signIn(token);
  t.equal(
    (await ask('POST', `/console/api/merchants/${id}/keys`, { session: fresh, body: { environment: 'test' } })).status,
    201,
  );
  t.equal(
    (await ask('POST', '/console/api/console-links', { session: fresh, body: {} })).status,
    409,
    'a session creates no link for itself',
  );
});

t.test('a member sees no other merchant, by whatever id', async (t) => {
  const { ask, createPerson, signIn, createMerchant, createKey } = await consoleFixture(t, 'sqlite::memory:');
  const [own, foreign] = [await createMerchant(), await createMerchant({ name: 'Bea Traders' })];
  const key = await createKey(foreign.id);
  const { token } = await createPerson('ada', ['merchant-admin'], own.id);
  const session = await signIn(token);
  t.equal((await ask('GET', `/console/api/merchants/${own.id}`, { session })).status, 200);
  for (const [method, at] of [
    ['GET', `/merchants/${foreign.id}`],
    ['GET', `/merchants/${foreign.id}/keys`],
    ['GET', `/merchants/${foreign.id}/usage`],
    ['GET', `/merchants/${foreign.id}/refusals`],
    ['GET', `/keys/${key.keyId}`],
    ['POST', `/keys/${key.keyId}/revoke`],
    ['GET', '/gateways'],
    ['GET', '/administrators'],
  ] as const)
    t.equal((await ask(method, `/console/api${at}`, { session })).status, 404, `${method} ${at}`);
  const { body } = await ask<{ id: string }[]>('GET', '/console/api/merchants', { session });
  t.same(
    body.data.map(({ id }) => id),
    [own.id],
  );
});

t.test('guessed, doubled and malformed cookies are refused and counted', async (t) => {
  const { ask, createPerson, signIn, eventsOf } = await consoleFixture(t, 'sqlite::memory:');
  const { token } = await createPerson('olu', ['owner']);
  const session = await signIn(token);
  for (const cookie of [
    `__Host-console=${'B'.repeat(43)}`,
    `__Host-console=${session}; __Host-console=${'B'.repeat(43)}`,
    `__Host-console=${session}x`,
    '__Host-console=',
    `console=${session}`,
    `__host-console=${session}`,
  ])
    t.equal((await ask('GET', '/console/api/me', { headers: { cookie } })).status, 401, cookie.slice(0, 24));
  t.equal((await ask('GET', '/console/api/me', { session })).status, 200);
  t.same(
    (await eventsOf('sign-in.failed')).map(({ after }) => after.cause),
    ['malformed', 'malformed', 'malformed', 'unknown'],
  );
});

t.test('a disabled member cannot open a link that they created for a colleague', async (t) => {
  const { ask, call, createMerchant, createPerson, enter, signIn, eventsOf } = await consoleFixture(
    t,
    'sqlite::memory:',
  );
  const { id: merchantId } = await createMerchant();
  const [ada, bea] = [
    await createPerson('ada', ['merchant-admin'], merchantId),
    await createPerson('bea', ['merchant-viewer'], merchantId),
  ];
  const session = await signIn(ada.token);
  const path = `/console/api/merchants/${merchantId}/members/${bea.id}/links`;
  const links = [
    await ask<{ url: string }>('POST', path, { session }),
    await ask<{ url: string }>('POST', path, { session }),
  ];
  const [first = '', second = ''] = links.map(({ body }) => new URL(body.data.url).hash.slice(1));
  t.equal((await enter(first)).status, 200, 'before that, such a link works');
  await call('PATCH', `/administrators/${ada.id}`, { body: { status: 'DISABLED' } });
  t.equal((await enter(second)).status, 401);
  t.match(await eventsOf('sign-in.failed'), [{ after: { cause: 'disabled' } }]);
});
