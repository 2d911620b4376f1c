import { randomBytes } from 'node:crypto';
import type { Test } from 'tap';
import { Attempts } from '../../src/registry/administrators/attempts.js';
import { registryAuthor } from '../../src/registry/events/author.js';
import { accountOf } from '../../src/registry/sign-in/account.js';
import { ClaimRules } from '../../src/registry/sign-in/claims.js';
import { IdentityProvider, type Verified } from '../../src/registry/sign-in/provider.js';
import type { DeviceSignIn, Session } from '../../src/registry/sign-in/schema.js';
import { SignIns } from '../../src/registry/sign-in/sign-ins.js';
import { onEachDatabase } from '../database/each-database.js';
import { until } from './manual-time.js';
import { openIdProvider } from './openid-provider.js';
import { registryFixture } from './registry-fixture.js';

const rules = [
  { claim: 'groups', value: 'ops', roles: ['operator'] },
  { claim: 'groups', value: 'desk', roles: ['support'] },
];

async function fixture(
  t: Test,
  url: string,
  clientOf: (client: IdentityProvider) => IdentityProvider = (client) => client,
) {
  const groups = new Map([['ada', ['ops']]]);
  const provider = await openIdProvider(t, groups, rules);
  const registry = await registryFixture(t, url, { identityProvider: clientOf(provider.client) });
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
    time.advance(25 * 3_600_000);
    t.equal((await start()).handle.length > 0, true, 'others can sign in while an ended sign-in refers to its token');
    t.equal(await rows(), 1);
    time.advance(12 * 3_600_000);
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

/**
 * The sign-ins of a second registry on the same database. This registry runs `request` just before it ends a sign-in.
 */
function interrupted(
  { options, provider }: Pick<Awaited<ReturnType<typeof fixture>>, 'options' | 'provider'>,
  request: () => Promise<unknown>,
): SignIns {
  const attempts = new Attempts(options);
  const record = attempts.record.bind(attempts);
  attempts.record = async (...given) => {
    await request();
    await record(...given);
  };
  return new SignIns({ ...options, attempts, provider: provider.client });
}

onEachDatabase('a replayed handle also ends the session of a refresh at the same moment', async (t, url) => {
  const made = await fixture(t, url);
  const { signIn, refresh, me, causes, time } = made;
  const first = (await signIn('ada')).body.data;
  const second = (await refresh(first.handle)).body.data;
  time.advance(20_000);
  let third = '';
  const signIns = interrupted(made, async () => (third = (await refresh(second.handle)).body.data.token));
  await t.rejects(signIns.refresh(String(first.handle), registryAuthor), { code: 'sign_in_ended' });
  t.match(third, /./, 'the refresh succeeded');
  t.equal((await me(third)).status, 401, 'but its session has ended');
  t.same(await causes('sign-in.ended'), ['replayed-handle']);
});

onEachDatabase('two requests that end a sign-in at the same moment store one event of its end', async (t, url) => {
  const made = await fixture(t, url);
  const { signIn, refresh, me, causes, time } = made;
  const first = (await signIn('ada')).body.data;
  const second = (await refresh(first.handle)).body.data;
  time.advance(20_000);
  const signIns = interrupted(made, () => refresh(first.handle));
  await t.rejects(signIns.refresh(String(first.handle), registryAuthor), { code: 'sign_in_ended' });
  t.same(await causes('sign-in.ended'), ['replayed-handle']);
  t.same(await causes('sign-in.failed'), ['replayed-handle', 'replayed-handle']);
  t.equal((await me(second.token)).status, 401);
});

onEachDatabase('a former handle is a stolen one, also after the clock was set back', async (t, url) => {
  const { signIn, refresh, me, causes, time } = await fixture(t, url);
  const first = (await signIn('ada')).body.data;
  const second = (await refresh(first.handle)).body.data;
  time.advance(-1_000);
  t.equal((await refresh(first.handle)).body.data.code, 'refresh_running', 'the clock of a replica is a bit behind');
  time.advance(-3_600_000);
  t.equal((await refresh(first.handle)).body.data.code, 'sign_in_ended');
  t.equal((await me(second.token)).status, 401);
  t.same(await causes('sign-in.ended'), ['replayed-handle']);
});

/** A provider that responds to a refresh when the test allows it. It does not rotate refresh tokens. */
class HeldProvider extends IdentityProvider {
  asked = 0;
  allowed: Promise<void> = Promise.resolve();

  override async refresh(refreshToken: string, sub: string): Promise<Verified> {
    this.asked += 1;
    await this.allowed;
    return { claims: { iss: this.options.issuer, sub, groups: ['ops'] }, refreshToken };
  }
}

onEachDatabase('a refresh that comes too late does not seem to have ended the sign-in', async (t, url) => {
  const held: HeldProvider[] = [];
  const { signIn, refresh, me, call, time } = await fixture(t, url, ({ options }) => {
    const provider = new HeldProvider(options, Date.now);
    held.push(provider);
    return provider;
  });
  const [provider] = held;
  if (provider === undefined) throw new Error('the registry has a provider');
  const holdRefresh = async (handle: string | null) => {
    const { asked } = provider;
    let allow = (): void => undefined;
    provider.allowed = new Promise((resolve) => (allow = resolve));
    const response = refresh(handle);
    await until(() => provider.asked > asked);
    provider.allowed = Promise.resolve();
    return { response, allow };
  };
  const first = (await signIn('ada')).body.data;
  const late = await holdRefresh(first.handle);
  time.advance(24_000);
  t.equal((await refresh(first.handle)).body.data.code, 'refresh_running', 'the provider can still respond');
  time.advance(2_000);
  const second = (await refresh(first.handle)).body.data;
  late.allow();
  t.match(await late.response, { status: 409, body: { data: { code: 'refresh_running' } } });
  t.equal((await me(second.token)).status, 200, 'the sign-in goes on');

  const ended = await holdRefresh(second.handle);
  await call('POST', '/sign-in/out', { headers: { authorization: `Bearer ${second.token}` } });
  ended.allow();
  t.match(await ended.response, { status: 401, body: { data: { code: 'sign_in_ended' } } });
});

onEachDatabase('without a mapped role nobody signs in, and a refresh ends the sign-in', async (t, url) => {
  const { signIn, refresh, me, groups, causes, call } = await fixture(t, url);
  const eve = await signIn('eve');
  t.match(eve, { status: 403, body: { data: { code: 'access_denied' } } });
  const ada = (await signIn('ada')).body.data;
  const { body } = await call<{ id: string }[]>('GET', '/administrators');
  const given = { name: 'laptop', administratorId: body.data[0]?.id };
  const { token } = (await call<{ token: string }>('POST', '/tokens', { body: given })).body.data;
  const read = () => call('GET', '/merchants', { headers: { authorization: `Bearer ${token}` } });
  t.equal((await read()).status, 200);
  groups.set('ada', []);
  t.equal((await refresh(ada.handle)).status, 401);
  t.equal((await me(ada.token)).status, 401);
  t.same(await causes('sign-in.failed'), ['revoked', 'no-role', 'no-role']);
  t.match(
    await read(),
    { status: 403, body: { message: /^This token has no role/ } },
    'nor does a token keep the roles',
  );
  t.equal((await signIn('ada')).status, 403);
  const { data: changes } = (await call<object[]>('GET', '/events?action=administrator.changed')).body;
  t.match(changes, [{ actor: 'registry', before: { roles: ['operator'] }, after: { roles: [] } }]);
  t.equal(changes.length, 1, 'a second refusal changes nothing');
  groups.set('ada', ['ops']);
  t.equal((await signIn('ada')).status, 200);
  t.equal((await read()).status, 200, 'a sign-in with a mapped role restores the roles');
});

onEachDatabase(
  'a refresh removes the roles of a member whose merchant the claims do not give any more',
  async (t, url) => {
    const { createMerchant, database, time } = await registryFixture(t, url);
    const [own, other] = [await createMerchant(), await createMerchant({ name: 'Bea Traders' })];
    const ofMembers = new ClaimRules([{ claim: 'groups', value: 'shop', roles: ['merchant-admin'] }], 'merchant');
    const accountWith = (merchant: string | null, refreshed: Parameters<typeof accountOf>[4] = null) => {
      const claims = { iss: 'https://login.example.com', sub: 'bea', groups: ['shop'], merchant };
      return accountOf({ transaction: database, now: time.now() }, randomBytes, claims, ofMembers, refreshed);
    };
    for (const [merchant, cause] of [
      [other.id, 'other-merchant'],
      [null, 'roles-do-not-fit-merchant'],
    ] as const) {
      const fitting = await accountWith(own.id);
      t.match(fitting, { administrator: { roles: ['merchant-admin'], merchantId: own.id } });
      const id = 'administrator' in fitting ? fitting.administrator.id : '';
      const byHand = { administrator_id: id, has_claimed_roles: 0 };
      for (const refreshed of [null, byHand, { ...byHand, has_claimed_roles: null }])
        t.same(
          await accountWith(merchant, refreshed),
          { result: { cause }, events: [] },
          'claims did not give the roles',
        );
      const events = [{ action: 'administrator.changed', merchantId: own.id, after: { roles: [] } }];
      t.match(await accountWith(merchant, { ...byHand, has_claimed_roles: 1 }), { result: { cause }, events }, cause);
      const rows = await database.selectFrom('administrators').selectAll().execute();
      t.match(rows, [{ roles: '[]', merchant_id: own.id }], cause);
    }
  },
);

onEachDatabase('a disabled administrator neither refreshes nor signs in', async (t, url) => {
  const { signIn, refresh, call, causes } = await fixture(t, url);
  const { handle } = (await signIn('ada')).body.data;
  const { body } = await call<{ id: string }[]>('GET', '/administrators');
  await call('PATCH', `/administrators/${body.data[0]?.id}`, { body: { status: 'DISABLED' } });
  t.equal((await refresh(handle)).status, 401);
  t.equal((await signIn('ada')).status, 403);
  t.same(await causes('sign-in.failed'), ['disabled', 'disabled']);
});

onEachDatabase('enabling an administrator again revives no sign-in', async (t, url) => {
  const { signIn, refresh, me, call, causes } = await fixture(t, url);
  const { token, handle } = (await signIn('ada')).body.data;
  const { body } = await call<{ id: string }[]>('GET', '/administrators');
  for (const status of ['DISABLED', 'ACTIVE'])
    await call('PATCH', `/administrators/${body.data[0]?.id}`, { body: { status } });
  t.equal((await me(token)).status, 401);
  t.equal((await refresh(handle)).status, 401);
  t.same(await causes('sign-in.failed'), ['ended', 'revoked']);
  t.equal((await me((await signIn('ada')).body.data.token)).status, 200, 'a new sign-in succeeds');
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

onEachDatabase('revoking the token of a session ends the sign-in, but a refresh does not', async (t, url) => {
  const { signIn, refresh, me, call, causes, database } = await fixture(t, url);
  const first = (await signIn('ada')).body.data;
  const { token, handle } = (await refresh(first.handle)).body.data;
  t.equal((await me(token)).status, 200, 'the refresh has revoked the first token only');
  const { body } = await call<{ id: string; revokedAt: string | null }[]>('GET', '/tokens');
  const current = body.data.find(({ revokedAt }) => revokedAt === null);
  const replaced = body.data.find(({ revokedAt }) => revokedAt !== null);
  t.match(
    await call('POST', `/tokens/${replaced?.id}/revoke`),
    { status: 409, body: { message: new RegExp(`sign-in is ${current?.id}: revoke it to end this sign-in$`) } },
    'a replaced token ends nothing, and the response says so',
  );
  const other = (await signIn('ada')).body.data;
  t.match(
    await call('POST', `/tokens/${replaced?.id}/revoke`),
    {
      status: 409,
      body: { message: /active sign-ins are tok_\w+, tok_\w+: revoke them to end all of these sign-ins$/ },
    },
    'all sign-ins of the administrator are named',
  );
  t.equal((await call('POST', '/sign-in/out', { headers: { authorization: `Bearer ${other.token}` } })).status, 200);
  t.equal((await call('POST', `/tokens/${current?.id}/revoke`)).status, 200);
  t.equal((await me(token)).status, 401);
  t.equal((await call('POST', `/tokens/${replaced?.id}/revoke`)).status, 200, 'no sign-in goes on');
  t.match(await refresh(handle), { status: 401, body: { data: { code: 'sign_in_ended' } } });
  t.match(await database.selectFrom('sign_ins').selectAll().execute(), [
    { status: 'ENDED', sealed: null },
    { status: 'ENDED', sealed: null },
  ]);
  t.same(await causes('sign-in.failed'), ['ended', 'revoked']);
});
