import t, { type Test } from 'tap';
import type { DeviceSignIn, Session } from '../../src/registry/sign-in/schema.js';
import { onEachDatabase } from '../database/each-database.js';
import { openIdProvider } from '../registry/openid-provider.js';
import { consoleFixture, origin, sessionIn, type Shown } from './console-fixture.js';

const rules = [
  { claim: 'groups', value: 'ops', roles: ['operator'] },
  { claim: 'groups', value: 'heads', roles: ['owner'] },
];
const callback = `${origin}/console/sign-in/callback`;

async function fixture(t: Test, url: string) {
  const groups = new Map([['ada', ['ops']]]);
  const provider = await openIdProvider(t, groups, rules, [callback]);
  const parts = await consoleFixture(t, url, { identityProvider: provider.client });
  // The provider uses the real time.
  parts.time.advance(Date.now() - parts.time.now());
  const start = (query = '', session?: string) => parts.ask('GET', `/console/sign-in${query}`, { session });
  const stateIn = ({ cookies }: Shown<unknown>) =>
    cookies.find(({ name }) => name === '__Host-console-login')?.value ?? '';
  /**
   * Sends the request with which a browser follows the provider's redirect to `to`. The browser marks the request as
   * cross-site, because the provider is another site. `state` is the cookie that the console set at the start.
   */
  const comeBack = (to: string, state: string) =>
    parts.ask('GET', to.slice(origin.length), {
      headers: { cookie: `__Host-console-login=${state}`, origin: undefined, 'sec-fetch-site': 'cross-site' },
    });
  const signInAs = async (sub: string, query = '', session?: string) => {
    const begun = await start(query, session);
    const to = await provider.signIn(String(begun.headers.location), sub, callback);
    return { to, state: stateIn(begun), response: await comeBack(to, stateIn(begun)) };
  };
  const postHandle = async (path: string, handle: string | null): Promise<Session> => {
    const headers = { authorization: '' };
    return (await parts.call<Session>('POST', path, { body: { handle }, headers })).body.data;
  };
  /** Signs ada in as `merchant-gateway login` does. */
  const signInWithDevice = async (): Promise<Session> => {
    const headers = { authorization: '' };
    const begun = await parts.call<DeviceSignIn>('POST', '/sign-in/device', { headers });
    const { handle, userCode } = begun.body.data;
    await provider.approve(userCode, 'ada');
    parts.time.advance(5_000);
    return postHandle('/sign-in/token', handle);
  };
  return { ...parts, provider, groups, start, stateIn, comeBack, signInAs, postHandle, signInWithDevice };
}

onEachDatabase('a person signs in at the OpenID provider, and proves their identity again', async (t, url) => {
  const { signInAs, ask, eventsOf, time, createMerchant, database } = await fixture(t, url);
  const { response } = await signInAs('ada', '?to=/console/events');
  t.match([response.status, response.headers.location], [302, '/console/events']);
  const session = sessionIn(response);
  t.match((await ask<object>('GET', '/console/api/me', { session })).body.data, {
    ...{ name: 'ada@example.com', roles: ['operator'], hasSignIn: true },
    session: { provenUntil: /T/ },
  });
  t.match(await eventsOf('sign-in.succeeded'), [
    { actor: 'ada@example.com', after: { subject: 'ada', isProof: false } },
  ]);
  t.same(await database.selectFrom('console_sign_ins').selectAll().execute(), [], 'a sign-in is used once');

  const { id } = await createMerchant();
  const create = (of: string) =>
    ask('POST', `/console/api/merchants/${id}/keys`, { session: of, body: { environment: 'test' } });
  t.equal((await create(session)).status, 201);
  // The provider's clock dates the proof, and it runs while the registry's test clock stands still. So the test counts
  // the five minutes from the present.
  time.advance(Date.now() - time.now() + 5 * 60_000 + 2_000);
  t.equal((await create(session)).status, 403, 'a proof counts for five minutes');
  time.advance(-5 * 60_000 - 2_000);
  const { response: proven } = await signInAs('ada', '?prove=yes', session);
  t.equal((await create(sessionIn(proven))).status, 201);
  t.equal((await ask('GET', '/console/api/me', { session })).status, 401, 'the new session replaces the former one');
});

onEachDatabase('a session ends with the command-line sign-in that created its link', async (t, url) => {
  const { ask, call, createLink, createPerson, enter, groups, postHandle, signIn, signInWithDevice, time } =
    await fixture(t, url);
  groups.set('ada', ['heads']);
  await createPerson('sam', ['operator']);
  const refresh = (handle: string | null) => postHandle('/sign-in/refresh', handle);
  const statusOf = async (session: string) => (await ask('GET', '/console/api/me', { session })).status;
  const isLinkValid = async (link: string) => (await enter(link)).status === 200;
  const createLinkIn = async (session: string): Promise<string> => {
    const given = { session, body: { administrator: 'sam' } };
    const { body } = await ask<{ url: string }>('POST', '/console/api/console-links', given);
    return new URL(body.data.url).hash.slice(1);
  };

  const first = await signInWithDevice();
  const session = await signIn(first.token);
  const second = await refresh(first.handle);
  t.equal(await statusOf(session), 200, 'a refresh replaces only the token');
  const [unused, next] = [await createLink(second.token), await createLinkIn(session)];
  await call('POST', '/sign-in/out', { headers: { authorization: `Bearer ${second.token}` } });
  t.equal(await statusOf(session), 401, 'the session ends with the sign-in');
  t.notOk(await isLinkValid(unused), 'and so does an unused link');
  t.notOk(await isLinkValid(next), 'and a link that the session created');
  t.same((await call('GET', '/sessions')).body.data, [], 'the list omits the session');

  const stolen = await signInWithDevice();
  const opened = await signIn((await refresh(stolen.handle)).token);
  time.advance(20_000);
  await refresh(stolen.handle);
  t.equal(await statusOf(opened), 401, 'a replayed handle ends the session too');

  const long = await signInWithDevice();
  time.advance(12 * 3_600_000 - 5 * 60_000);
  const { token } = await refresh(long.handle);
  const [last, late] = [await signIn(token), await createLink(token)];
  t.equal(await statusOf(last), 200);
  time.advance(5 * 60_000);
  t.equal(await statusOf(last), 401, 'the session lasts as long as the sign-in');
  t.notOk(await isLinkValid(late), 'and so does a link');
});

t.test('an invitation of a member outlives the command-line sign-in of its creator', async (t) => {
  const { app, createMerchant, createPerson, enter, groups, signInWithDevice } = await fixture(t, 'sqlite::memory:');
  groups.set('ada', ['heads']);
  const { id } = await createMerchant();
  const mia = await createPerson('mia', ['merchant-admin'], id);
  const headers = { authorization: `Bearer ${(await signInWithDevice()).token}` };
  const made = await app.inject({ method: 'POST', url: `/merchants/${id}/members/${mia.id}/links`, headers });
  await app.inject({ method: 'POST', url: '/sign-in/out', headers });
  const { url } = made.json<{ data: { url: string } }>().data;
  t.equal((await enter(new URL(url).hash.slice(1))).status, 200);
});

t.test('the provider gets a code challenge, a state and a nonce, and no offline access', async (t) => {
  const { start } = await fixture(t, 'sqlite::memory:');
  const begun = await start('?prove=yes');
  const { searchParams } = new URL(String(begun.headers.location));
  t.match(Object.fromEntries(searchParams), {
    ...{ redirect_uri: callback, code_challenge_method: 'S256', code_challenge: /^[\w-]{43}$/ },
    ...{ state: /^[\w-]{43}$/, nonce: /^[\w-]{43}$/, scope: /^openid profile$/, prompt: 'login', max_age: '0' },
  });
  t.match(
    String(begun.headers['set-cookie']),
    /^__Host-console-login=[\w-]{43}; Path=\/; Secure; HttpOnly; SameSite=Lax; Max-Age=600$/,
  );
});

t.test('a callback without its cookie, with that of another sign-in, or a second time opens nothing', async (t) => {
  const { start, stateIn, comeBack, provider, signInAs, eventsOf } = await fixture(t, 'sqlite::memory:');
  const failed = (response: Shown<unknown>, what: string): void => {
    t.match([response.status, response.headers.location], [302, '/console/?sign-in=failed'], what);
    t.equal(sessionIn(response), '', what);
  };
  const begun = await start();
  const to = await provider.signIn(String(begun.headers.location), 'ada', callback);
  failed(await comeBack(to, 'A'.repeat(43)), 'an attacker sends their own callback to a victim without a sign-in');
  const victims = await start();
  failed(await comeBack(to, stateIn(victims)), 'and to one whose own sign-in has begun');
  const { to: used, state } = await signInAs('ada');
  failed(await comeBack(used, state), 'a second time');
  t.same(
    (await eventsOf('sign-in.failed')).map(({ after }) => after.cause),
    ['unknown-sign-in', 'oauth_invalid_response', 'unknown-sign-in'],
  );
});

t.test('a person without a role, and a refusal at the provider, are told so', async (t) => {
  const { signInAs, start, comeBack, stateIn, groups, provider } = await fixture(t, 'sqlite::memory:');
  groups.set('eve', []);
  t.equal((await signInAs('eve')).response.headers.location, '/console/?sign-in=failed');
  const begun = await start();
  const { searchParams } = new URL(String(begun.headers.location));
  const denied = `${callback}?error=access_denied&state=${searchParams.get('state') ?? ''}&iss=${encodeURIComponent(provider.issuer)}`;
  t.equal((await comeBack(denied, stateIn(begun))).headers.location, '/console/?sign-in=denied');
  await provider.stop();
  const { response } = { response: await comeBack(`${callback}?code=x`, stateIn(await start())) };
  t.equal(response.headers.location, '/console/?sign-in=failed');
});

t.test('the page to return to is one of the console', async (t) => {
  const { signInAs } = await fixture(t, 'sqlite::memory:');
  for (const to of ['https://evil.example/', '//evil.example/', '/elsewhere', '/console/\\evil'])
    t.equal(
      (await signInAs('ada', `?to=${encodeURIComponent(to)}`)).response.headers.location,
      to === '/console/\\evil' ? to : '/console/',
      to,
    );
});
