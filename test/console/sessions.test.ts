import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import t from 'tap';
import { digestOf } from '../../src/registry/administrators/token-text.js';
import { noRules } from '../../src/registry/approvals/guard.js';
import { applyConfiguredRules } from '../../src/registry/approvals/rules.js';
import { onEachDatabase } from '../database/each-database.js';
import { token } from '../registry/registry-fixture.js';
import { consoleFixture, sessionIn } from './console-fixture.js';

interface Session {
  readonly id: string;
  readonly isCurrent: boolean;
}

const minute = 60_000;

onEachDatabase('a link signs a person in once, with the roles of the token that created it', async (t, url) => {
  const { ask, createPerson, createLink, enter, eventsOf, database } = await consoleFixture(t, url);
  const { token, id } = await createPerson('ada', ['support']);
  const secret = await createLink(token);
  const entered = await enter(secret);
  t.equal(entered.status, 200);
  const cookie = String(entered.headers['set-cookie']);
  t.match(cookie, /^__Host-console=[\w-]{43}; Path=\/; Secure; HttpOnly; SameSite=Strict$/);
  const session = sessionIn(entered);
  const me = await ask<{ name: string; roles: string[]; session: { provenUntil: string } }>('GET', '/console/api/me', {
    session,
  });
  t.match(me.body.data, { name: 'ada', roles: ['support'], session: { provenUntil: /T/ } });

  const again = await enter(secret);
  t.match([again.status, again.body.data.code], [401, 'link_not_valid']);
  t.equal(sessionIn(again), '');
  t.match(await eventsOf('console-link.created'), [{ actor: 'ada', after: { administratorId: id } }]);
  t.match(await eventsOf('sign-in.succeeded'), [{ actor: 'ada', proof: /^session:ses_/ }]);
  t.match(await eventsOf('sign-in.failed'), [{ after: { cause: 'used-link' } }]);
  const stored = JSON.stringify([
    await database.selectFrom('console_links').selectAll().execute(),
    await database.selectFrom('console_sessions').selectAll().execute(),
    await database.selectFrom('events').selectAll().execute(),
  ]);
  t.notOk(stored.includes(secret), 'the database does not have the link');
  t.notOk(stored.includes(session), 'nor the cookie');
});

onEachDatabase(
  'an administrator has at most 20 unexpired links, used or not, and the refusal says so',
  async (t, url) => {
    const { app, createPerson, createLink, enter } = await consoleFixture(t, url);
    const { token } = await createPerson('ada', ['support']);
    const used = await createLink(token);
    t.equal((await enter(used)).status, 200);
    for (let count = 1; count < 20; count += 1) await createLink(token);
    const more = await app.inject({
      ...{ method: 'POST', url: '/console-links', payload: '{}' },
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    });
    t.match([more.statusCode, more.body], [409, /has 20 links that have not expired, including used ones/]);
  },
);

onEachDatabase('a request of an ended session counts like one with a wrong token', async (t, url) => {
  const { app, ask, createPerson, signIn, time } = await consoleFixture(t, url);
  const session = await signIn((await createPerson('ada', ['support'])).token);
  time.advance(30 * minute);
  t.equal((await ask('GET', '/console/api/me', { session })).status, 401);
  const metrics = (await app.inject('/metrics')).body;
  t.match(metrics, 'registry_requests_total{route="/console/api/me",method="GET",status="401"} 1');
  t.match(readFileSync('docs/monitoring.md', 'utf8'), /^\| `registry_requests_total` .*an ended session is a 401 \|$/m);
  const alerts = readFileSync('helm/files/alerts.yaml', 'utf8');
  t.match(alerts, /alert: RegistryTokenRefused\n(?: {8}.*\n)*? {10}summary: .* no valid token or session\./);
});

// Regression: a sign-in link was valid longer than its token. Opening such a link reported success and replaced the
// browser's session by one that had already expired with the token.
onEachDatabase('a link expires with the token that created it', async (t, url) => {
  const fixture = await consoleFixture(t, url);
  const { app, ask, call, createLink, createMerchant, createPerson, database, enter, eventsOf, signIn, time } = fixture;
  const { id } = await createPerson('ada', ['owner']);
  const { token: other } = await createPerson('bea', ['support']);
  const body = { name: 'short', administratorId: id, expiresInSeconds: 300 };
  const short = (await call<{ token: string; expiresAt: string }>('POST', '/tokens', { body })).body.data;
  const [secret, changed] = [await createLink(short.token), await createLink(short.token)];
  const session = await signIn(other);

  const { id: merchantId } = await createMerchant();
  const member = await createPerson('kim', ['merchant-viewer'], merchantId);
  const authorization = `Bearer ${short.token}`;
  const at = `/merchants/${merchantId}/members/${member.id}/links`;
  const invited = await app.inject({ method: 'POST', url: at, headers: { authorization } });
  t.match([invited.statusCode, invited.json()], [201, { data: { expiresAt: short.expiresAt } }]);

  // The second link gets a later expiry than the token that created it, as links had before the fix.
  const later = database.updateTable('console_links').set({ expires_at: time.now() + 10 * minute });
  await later.where('digest', '=', digestOf(changed)).execute();
  time.advance(6 * minute);
  for (const late of [secret, changed]) t.equal((await enter(late, session)).status, 401);
  t.equal((await ask('GET', '/console/api/me', { session })).status, 200, 'the session of the browser goes on');
  t.same(
    (await eventsOf('sign-in.succeeded')).map(({ actor }) => actor),
    ['bea'],
  );
  t.match(await eventsOf('sign-in.failed'), [
    { after: { cause: 'expired-link' } },
    { after: { cause: 'expired-link' } },
  ]);
});

// Regression: the browser sent a request, and then signed in again. The late response to the request deleted the cookie
// of the new session.
onEachDatabase('a late request of a replaced session keeps the cookie of the new one', async (t, url) => {
  const { ask, createLink, createPerson, enter, signIn, time } = await consoleFixture(t, url);
  const { token } = await createPerson('ada', ['support']);
  const former = await signIn(token);
  const session = sessionIn(await enter(await createLink(token), former));
  const late = await ask('GET', '/console/api/me', { session: former });
  t.equal(late.status, 401);
  t.equal(late.headers['set-cookie'], undefined);
  t.equal((await ask('GET', '/console/api/me', { session })).status, 200);
  time.advance(minute);
  const later = await ask('GET', '/console/api/me', { session: former });
  t.equal(later.status, 401);
  t.match(String(later.headers['set-cookie']), /^__Host-console=;.* Max-Age=0$/);
});

onEachDatabase('two requests at once use a link once', async (t, url) => {
  const { createPerson, createLink, enter } = await consoleFixture(t, url);
  const { token } = await createPerson('ada', ['support']);
  const secret = await createLink(token);
  const statuses = (await Promise.all([enter(secret), enter(secret), enter(secret)])).map(({ status }) => status);
  t.same(statuses.toSorted(), [200, 401, 401]);
});

onEachDatabase('a session ends by idleness, after eight hours, and with its administrator or token', async (t, url) => {
  const { ask, call, createPerson, createLink, enter, signIn, time } = await consoleFixture(t, url);
  const statusOf = async (session: string): Promise<number> =>
    (await ask('GET', '/console/api/me', { session })).status;
  const { token, id, tokenId } = await createPerson('ada', ['support']);
  const late = await createLink(token);
  time.advance(10 * minute);
  t.equal((await enter(late)).status, 401, 'a link is valid for ten minutes');

  const idle = await signIn(token);
  time.advance(29 * minute);
  t.equal(await statusOf(idle), 200);
  time.advance(29 * minute);
  t.equal(await statusOf(idle), 200, 'each use counts');
  time.advance(30 * minute);
  t.equal(await statusOf(idle), 401);

  const unattended = await signIn(token);
  const headers = { 'x-unattended': 'yes' };
  time.advance(29 * minute);
  t.equal((await ask('GET', '/console/api/me', { session: unattended, headers })).status, 200);
  time.advance(minute);
  t.equal(await statusOf(unattended), 401, 'what a page reads by itself does not keep a session open');

  const long = await signIn(token);
  for (let passed = 0; passed < 8 * 60 - 20; passed += 20) {
    time.advance(20 * minute);
    t.equal(await statusOf(long), 200, `after ${passed + 20} minutes`);
  }
  time.advance(20 * minute);
  t.equal(await statusOf(long), 401, 'eight hours are the most');

  const disabled = await signIn(token);
  const unused = await createLink(token);
  await call('PATCH', `/administrators/${id}`, { body: { status: 'DISABLED' } });
  t.equal(await statusOf(disabled), 401);
  await call('PATCH', `/administrators/${id}`, { body: { status: 'ACTIVE' } });
  t.equal(await statusOf(disabled), 401, 'enabling the administrator revives no session');
  t.equal((await enter(unused)).status, 401, 'nor a link');

  const revoked = await signIn(token);
  await call('POST', `/tokens/${tokenId}/revoke`);
  t.equal(await statusOf(revoked), 401, 'a session ends with the token that created its link');
});

onEachDatabase('a request for approval ends with the token that opened its session', async (t, url) => {
  const { ask, call, createMerchant, createPerson, database, signIn, time } = await consoleFixture(t, url);
  const context = { database, clock: time, random: randomBytes };
  await applyConfiguredRules(context, { ...noRules, goLive: true }, undefined);
  const [olu, oma] = [await createPerson('olu', ['operator']), await createPerson('oma', ['operator'])];
  const { id } = await createMerchant();
  const session = await signIn(olu.token);
  const waits = await ask<{ approvalId: string }>('PATCH', `/console/api/merchants/${id}`, {
    ...{ session, body: { goLive: true } },
  });
  t.match([waits.status, waits.body.data.code], [409, 'approval_required']);
  await call('POST', `/tokens/${olu.tokenId}/revoke`);
  const headers = { authorization: `Bearer ${oma.token}` };
  t.match(await call('POST', `/approvals/${waits.body.data.approvalId}/approve`, { headers }), {
    status: 409,
    body: { data: { code: 'approval_stale' } },
  });
});

onEachDatabase('a person lists and ends their own sessions; an owner those of others', async (t, url) => {
  const { ask, createPerson, signIn, eventsOf, time } = await consoleFixture(t, url);
  const [ada, bea, owner] = [
    await createPerson('ada', ['support']),
    await createPerson('bea', ['support']),
    await createPerson('olu', ['owner']),
  ];
  const first = await signIn(ada.token);
  time.advance(1000);
  const [second, other, owners] = [await signIn(ada.token), await signIn(bea.token), await signIn(owner.token)];
  const list = await ask<Session[]>('GET', '/console/api/sessions', { session: first });
  t.same(
    list.body.data.map(({ isCurrent }) => isCurrent),
    [false, true],
  );
  const [{ id: secondId } = { id: '' }, { id: firstId } = { id: '' }] = list.body.data;
  const end = (session: string, id: string) => ask('DELETE', `/console/api/sessions/${id}`, { session });
  t.equal((await end(other, secondId)).status, 404, 'a session of somebody else does not exist for a support');
  t.equal((await end(first, secondId)).status, 200);
  t.equal((await ask('GET', '/console/api/me', { session: second })).status, 401);
  time.advance(1000);
  t.equal((await end(owners, firstId)).status, 200);
  const ended = await ask('GET', '/console/api/me', { session: first });
  t.match(ended, { status: 401, headers: { 'set-cookie': /Max-Age=0$/ } }, 'no new session replaced it');
  t.match(await eventsOf('sign-in.ended'), [
    { actor: 'olu', after: { cause: 'by-other' } },
    { actor: 'ada', after: { cause: 'signed-out' } },
  ]);
  t.match(await eventsOf('attempt.refused'), [{ actor: 'bea', after: { needs: 'administrators:write' } }]);
});

t.test('the page is served for each path of the console, and assets may be kept', async (t) => {
  const { ask } = await consoleFixture(t, 'sqlite::memory:');
  for (const at of ['/console/', '/console/merchants/m_1/keys', '/console/enter'])
    t.match(
      await ask('GET', at),
      { status: 200, text: '<!doctype html>', headers: { 'cache-control': 'no-cache' } },
      at,
    );
  t.match(await ask('GET', '/console'), { status: 302, headers: { location: '/console/' } });
  t.match(await ask('GET', '/console/assets/main-1.js'), {
    status: 200,
    headers: { 'cache-control': 'public, max-age=31536000, immutable' },
  });
  for (const at of ['/console/assets/none.js', '/elsewhere']) t.equal((await ask('GET', at)).status, 404, at);
  t.equal((await ask('GET', '/console/api/none')).status, 401, 'paths of the API are secret until somebody signs in');
});

t.test('the shared token creates links for the only owner, or for the one that it names', async (t) => {
  const { createLink, createPerson, enter, ask, call, app } = await consoleFixture(t, 'sqlite::memory:');
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const noOwner = await app.inject({ method: 'POST', url: '/console-links', headers, payload: '{}' });
  t.match([noOwner.statusCode, noOwner.json()], [409, { data: { code: 'no_owner' } }]);
  await createPerson('olu', ['owner']);
  const session = sessionIn(await enter(await createLink(token)));
  t.match((await ask<{ name: string }>('GET', '/console/api/me', { session })).body.data, { name: 'olu' });
  await createPerson('ada', ['support']);
  const support = sessionIn(await enter(await createLink(token, { administrator: 'ada' })));
  t.match((await ask<{ name: string }>('GET', '/console/api/me', { session: support })).body.data, { name: 'ada' });
  t.equal(
    (await call('POST', '/console-links', { body: {} })).status,
    404,
    'a registry without a console has no links',
  );
});
