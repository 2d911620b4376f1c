import type { Test } from 'tap';
import type { DeviceSignIn, Session } from '../../src/registry/sign-in/schema.js';
import { onEachDatabase } from '../database/each-database.js';
import { openIdProvider } from './openid-provider.js';
import { registryFixture } from './registry-fixture.js';

const rules = [
  { claim: 'groups', value: 'ops', roles: ['operator'] },
  { claim: 'groups', value: 'desk', roles: ['support'] },
];

async function fixture(t: Test, url: string) {
  const groups = new Map([['ada', ['ops']]]);
  const provider = await openIdProvider(t, groups, rules);
  const registry = await registryFixture(t, url, { identityProvider: provider.client });
  const anonymous = { authorization: '' };
  const start = async () =>
    (await registry.call<DeviceSignIn>('POST', '/sign-in/device', { headers: anonymous })).body.data;
  const redeem = (handle: string) => {
    registry.time.advance(5_000);
    return registry.call<Session & { code?: string }>('POST', '/sign-in/token', {
      body: { handle },
      headers: anonymous,
    });
  };
  const refresh = (handle: string | null) =>
    registry.call<Session & { code?: string }>('POST', '/sign-in/refresh', { body: { handle }, headers: anonymous });
  const signIn = async (sub: string) => {
    const { handle, userCode } = await start();
    await provider.approve(userCode, sub);
    return redeem(handle);
  };
  const me = (token: string) =>
    registry.call<{ roles: string[]; proof: string }>('GET', '/me', { headers: { authorization: `Bearer ${token}` } });
  const causes = async (action: string) =>
    (await registry.call<{ after: { cause?: string } }[]>('GET', `/events?action=${action}`)).body.data.map(
      ({ after }) => after.cause,
    );
  return { groups, provider, ...registry, start, redeem, refresh, signIn, me, causes };
}

onEachDatabase(
  'a person signs in with a device code, on any replica, and their session ends after 15 minutes',
  async (t, url) => {
    const { start, redeem, provider, me, time, replica, database, call } = await fixture(t, url);
    const { handle, userCode, verificationUri } = await start();
    t.ok(verificationUri.startsWith(provider.issuer));
    t.equal((await redeem(handle)).body.data.code, 'authorization_pending');
    await provider.approve(userCode, 'ada');
    time.advance(5_000);
    const payload = JSON.stringify({ handle });
    const headers = { 'content-type': 'application/json' };
    const response = await replica.inject({ method: 'POST', url: '/sign-in/token', payload, headers });
    const { data } = response.json<{ data: Session }>();
    t.match(data, { name: 'ada@example.com', roles: ['operator'] });
    t.match((await me(data.token)).body.data, { roles: ['operator'], proof: /^session:tok_/ });
    const stored = JSON.stringify(await database.selectFrom('sign_ins').selectAll().execute());
    for (const secret of [data.token, data.handle, handle]) t.notOk(stored.includes(String(secret)));
    const { body } = await call('GET', '/events?action=sign-in.succeeded');
    t.match(body.data, [
      {
        actor: 'ada@example.com',
        administratorId: /^adm_/,
        proof: /^session:tok_/,
        after: { subject: 'ada', issuer: provider.issuer },
      },
    ]);
    time.advance(15 * 60_000);
    t.equal((await me(data.token)).status, 401);
    const rows = async (): Promise<number> =>
      (await database.selectFrom('administrator_tokens').selectAll().execute()).length;
    t.equal(await rows(), 1);
    time.advance(37 * 3_600_000);
    await start();
    t.equal(await rows(), 0, 'sessions are deleted a day after their end');
  },
);

onEachDatabase('two requests within the interval are told to slow down', async (t, url) => {
  const { start, call } = await fixture(t, url);
  const { handle } = await start();
  const { body } = await call<{ code: string }>('POST', '/sign-in/token', { body: { handle } });
  t.equal(body.data.code, 'slow_down');
});

onEachDatabase('a refresh reads the roles again, and revokes the former session', async (t, url) => {
  const { signIn, refresh, me, groups, causes, time } = await fixture(t, url);
  const first = (await signIn('ada')).body.data;
  groups.set('ada', ['desk']);
  const second = (await refresh(first.handle)).body.data;
  t.same(second.roles, ['support']);
  t.equal((await me(first.token)).status, 401, 'the former session is revoked');
  t.equal((await me(second.token)).status, 200);
  t.equal((await causes('administrator.changed')).length, 1);
  t.equal((await refresh(first.handle)).body.data.code, 'refresh_running', 'a parallel command waits');
  t.equal((await me(second.token)).status, 200);
  time.advance(20_000);
  t.equal((await refresh(first.handle)).status, 401, 'later, a former handle is a stolen one');
  t.equal((await me(second.token)).status, 401, 'and ends the sign-in');
  t.same(await causes('sign-in.ended'), ['replayed-handle']);
});

onEachDatabase('without a mapped role nobody signs in, and a refresh ends the sign-in', async (t, url) => {
  const { signIn, refresh, me, groups, causes } = await fixture(t, url);
  const eve = await signIn('eve');
  t.match(eve, { status: 403, body: { data: { code: 'access_denied' } } });
  const ada = (await signIn('ada')).body.data;
  groups.set('ada', []);
  t.equal((await refresh(ada.handle)).status, 401);
  t.equal((await me(ada.token)).status, 401);
  t.same(await causes('sign-in.failed'), ['revoked', 'no-role', 'no-role']);
});

onEachDatabase('a disabled administrator neither refreshes nor signs in', async (t, url) => {
  const { signIn, refresh, call, causes } = await fixture(t, url);
  const { handle } = (await signIn('ada')).body.data;
  const { body } = await call<{ id: string }[]>('GET', '/administrators');
  await call('PATCH', `/administrators/${body.data[0]?.id}`, { body: { status: 'DISABLED' } });
  t.equal((await refresh(handle)).status, 401);
  t.equal((await signIn('ada')).status, 403);
  t.same(await causes('sign-in.failed'), ['disabled', 'disabled']);
});

onEachDatabase('while the provider is away, sessions continue, and a later refresh succeeds or not', async (t, url) => {
  const { signIn, refresh, me, provider, call } = await fixture(t, url);
  const { token, handle } = (await signIn('ada')).body.data;
  await provider.stop();
  t.match(await refresh(handle), { status: 503, body: { data: { code: 'provider_unavailable' } } });
  t.match(await refresh(handle), { status: 503 }, 'the handle stays valid');
  t.match(await call('POST', '/sign-in/device'), { status: 503, body: { data: { code: 'provider_unavailable' } } });
  t.equal((await me(token)).status, 200);
});

onEachDatabase('signing out ends the session and the sign-in', async (t, url) => {
  const { signIn, refresh, me, call, causes } = await fixture(t, url);
  const { token, handle } = (await signIn('ada')).body.data;
  t.match(await call('POST', '/sign-in/out'), { status: 409, body: { data: { code: 'no_session' } } });
  const headers = { authorization: `Bearer ${token}` };
  t.equal((await call('POST', '/sign-in/out', { headers })).status, 200);
  t.equal((await me(token)).status, 401);
  t.equal((await refresh(handle)).status, 401);
  t.same(await causes('sign-in.ended'), ['signed-out']);
});
