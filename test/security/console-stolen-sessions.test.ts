import { randomBytes } from 'node:crypto';
import t from 'tap';
import { noRules } from '../../src/registry/approvals/guard.js';
import { applyConfiguredRules } from '../../src/registry/approvals/rules.js';
import { consoleFixture, origin, sessionIn } from '../console/console-fixture.js';
import { onEachDatabase } from '../database/each-database.js';
import { postLateBody } from '../registry/late-body.js';
import { until } from '../registry/manual-time.js';

const minute = 60_000;
const noLog = { error: () => undefined, warn: () => undefined, info: () => undefined };

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
    ['/imports', { entries: [{ lookupId: '0'.repeat(64), merchantId: id, environment: 'live' }] }],
    [`/restores/held/${keyId}/lift`, {}],
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

t.test('an open browser is not enough to give rights or to approve a change', async (t) => {
  const { ask, call, database, createPerson, signIn, createMerchant, time, eventsOf } = await consoleFixture(
    t,
    'sqlite::memory:',
  );
  const { id: merchantId } = await createMerchant();
  const [owner, sam, ada, bea] = [
    await createPerson('olu', ['owner']),
    await createPerson('sam', ['support']),
    await createPerson('ada', ['merchant-admin'], merchantId),
    await createPerson('bea', ['merchant-viewer'], merchantId),
  ];
  const [session, ofAdmin] = [await signIn(owner.token), await signIn(ada.token)];
  time.advance(10 * minute);
  const members = `/merchants/${merchantId}/members`;
  await applyConfiguredRules({ database, clock: time, random: randomBytes }, { ...noRules, goLive: true }, noLog);
  const headers = { authorization: `Bearer ${(await createPerson('opi', ['operator'])).token}` };
  const wanted = { body: { goLive: true }, headers };
  const asked = await call<{ approvalId: string }>('PATCH', `/merchants/${merchantId}`, wanted);
  const approval = `/approvals/${asked.body.data.approvalId}`;
  const rights = [
    ['POST', '/administrators', { name: 'eve', kind: 'person', roles: ['owner'] }, session],
    ['PATCH', `/administrators/${sam.id}`, { roles: ['owner'] }, session],
    ['PATCH', `/administrators/${sam.id}`, { status: 'DISABLED', roles: ['owner'] }, session],
    ['PATCH', `/administrators/${sam.id}`, { status: 'ACTIVE' }, session],
    ['PATCH', `${members}/${bea.id}`, { role: 'merchant-admin' }, ofAdmin],
    ['PATCH', `${members}/${bea.id}`, { status: 'ACTIVE' }, ofAdmin],
    ['POST', `${approval}/approve`, undefined, session],
  ] as const;
  for (const [method, at, body, of] of rights) {
    const sent = { session: of, ...(body === undefined ? {} : { body }) };
    const { status, body: shown } = await ask(method, `/console/api${at}`, sent);
    t.match([status, shown.data.code], [403, 'identity_not_proven'], `${method} ${at} ${JSON.stringify(body)}`);
  }
  t.equal((await eventsOf('attempt.refused')).length, rights.length);
  for (const [at, of] of [
    [`/administrators/${sam.id}`, session],
    [`${members}/${bea.id}`, ofAdmin],
  ] as const) {
    const disabled = await ask('PATCH', `/console/api${at}`, { session: of, body: { status: 'DISABLED', version: 1 } });
    t.equal(disabled.status, 200, 'stopping somebody needs no proof');
  }
  t.equal((await ask('POST', `/console/api${approval}/reject`, { session })).status, 200, 'nor does a rejection');
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

onEachDatabase('a disabled administrator does not stay signed in as somebody else', async (t, url) => {
  const { ask, call, createPerson, createLink, enter, eventsOf, signIn } = await consoleFixture(t, url);
  const [ada, eve, sam] = [
    await createPerson('ada', ['owner']),
    await createPerson('eve', ['owner']),
    await createPerson('sam', ['support']),
  ];
  const created = await call<{ token: string }>('POST', '/tokens', {
    body: { name: 'x', administratorId: eve.id },
    headers: { authorization: `Bearer ${ada.token}` },
  });
  // Eve's token, and a second token of Eve, which Ada created and so also knows.
  const tokens = [eve.token, created.body.data.token];
  const [sessions, unused]: [string[], string[]] = [[], []];
  for (const token of tokens) {
    sessions.push(sessionIn(await enter(await createLink(token, { administrator: 'sam' }))));
    unused.push(await createLink(token, { administrator: 'sam' }));
  }
  const own = await signIn(sam.token);
  const statusOf = async (session: string) => (await ask('GET', '/console/api/me', { session })).status;
  for (const session of [...sessions, own]) t.equal(await statusOf(session), 200);
  await call('PATCH', `/administrators/${eve.id}`, { body: { status: 'DISABLED' } });
  for (const session of sessions) t.equal(await statusOf(session), 401);
  for (const link of unused) t.equal((await enter(link)).status, 401);
  t.equal(await statusOf(own), 200, 'what Sam opened stays');
  t.same(
    (await eventsOf('sign-in.failed')).map(({ after }) => after.cause),
    ['disabled', 'disabled', 'disabled', 'disabled'],
  );
  const list = await ask<{ isCurrent: boolean }[]>('GET', '/console/api/sessions', { session: own });
  t.match(list.body.data, [{ isCurrent: true }]);
  t.equal(list.body.data.length, 1, 'and only that is listed as open');

  await call('PATCH', `/administrators/${eve.id}`, { body: { status: 'ACTIVE' } });
  for (const session of sessions) t.equal(await statusOf(session), 401, 'what Eve opened stays ended');
  for (const link of unused) t.equal((await enter(link)).status, 401);
  t.equal(await statusOf(own), 200);
  t.equal(await statusOf(await signIn(eve.token)), 200, 'a token is valid again');
});

t.test('a request whose body arrives after the end of its session creates no key', async (t) => {
  const { call, console, createMerchant, createPerson, database, eventsOf, signIn, time } = await consoleFixture(
    t,
    'sqlite::memory:',
  );
  const { id, token } = await createPerson('olu', ['owner']);
  const merchant = await createMerchant();
  const session = await signIn(token);
  const url = await console.listen({ host: '127.0.0.1', port: 0 });
  time.advance(minute);
  const headers = { host: new URL(origin).host, origin, cookie: `__Host-console=${session}` };
  const body = JSON.stringify({ environment: 'live' });
  const lastUse = database.selectFrom('console_sessions').select('last_seen_at');
  const status = await postLateBody(`${url}/console/api/merchants/${merchant.id}/keys`, headers, body, async () => {
    await until(async () => (await lastUse.executeTakeFirstOrThrow()).last_seen_at === time.now());
    await call('PATCH', `/administrators/${id}`, { body: { status: 'DISABLED' } });
  });
  t.equal(status, 401);
  t.same(await eventsOf('key.created'), []);
});
