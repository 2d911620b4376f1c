import t from 'tap';
import { onEachDatabase } from '../database/each-database.js';
import type { Administrator, AdministratorToken } from '../../src/registry/administrators/schema.js';
import type { RegistryEvent } from '../../src/registry/events/schema.js';
import { registryFixture } from './registry-fixture.js';

type NewToken = AdministratorToken & { readonly token: string };
type Fixture = Awaited<ReturnType<typeof registryFixture>>;

async function createWithToken({ call }: Fixture, body: object, token: object = {}) {
  const administrator = (await call<Administrator>('POST', '/administrators', { body })).body.data;
  const given = { name: 'test', administratorId: administrator.id, ...token };
  const created = (await call<NewToken>('POST', '/tokens', { body: given })).body.data;
  return { administrator, token: created, headers: { authorization: `Bearer ${created.token}` } };
}

onEachDatabase('an administrator acts under their own name, and a change of roles counts at once', async (t, url) => {
  const fixture = await registryFixture(t, url);
  const { call, createMerchant, createKey } = fixture;
  const { id } = await createMerchant();
  const key = await createKey(id);
  const { administrator, token, headers } = await createWithToken(fixture, { name: 'sam', roles: ['support'] });
  t.match(administrator, {
    id: /^adm_/,
    name: 'sam',
    kind: 'person',
    status: 'ACTIVE',
    roles: ['support'],
    version: 1,
  });
  t.match(token, { id: /^tok_/, token: /^mga_[\w-]{43}[0-9a-f]{8}$/, expiresAt: '2026-04-15T12:00:00.000Z' });
  t.match(await call('GET', '/me', { headers }), {
    status: 200,
    body: { data: { name: 'sam', proof: `token:${token.id}`, roles: ['support'], merchantId: null } },
  });
  const refused = await call('POST', `/merchants/${id}/keys`, { body: { environment: 'live' }, headers });
  t.match(refused, {
    status: 403,
    body: {
      message: 'Your roles (support) do not allow this: the permission keys:create is needed',
      data: { code: 'permission_missing', permission: 'keys:create' },
    },
  });
  const reason = encodeURIComponent('Schlüssel gestohlen');
  const revoked = await call('POST', `/keys/${key.keyId}/revoke`, {
    headers: { ...headers, 'x-reason': reason, 'x-actor': 'somebody-else' },
  });
  t.equal(revoked.status, 200);
  const events = (await call<object[]>('GET', '/events')).body.data;
  const by = { actor: 'sam', administratorId: administrator.id, proof: `token:${token.id}`, claimed: null };
  t.match(
    events.find((event) => Reflect.get(event, 'action') === 'key.revoked'),
    { ...by, reason: 'Schlüssel gestohlen', source: '127.0.0.1', requestId: revoked.headers['x-request-id'] },
  );
  t.match(
    events.find((event) => Reflect.get(event, 'action') === 'attempt.refused'),
    { ...by, after: { method: 'POST', route: '/merchants/:id/keys', params: { id }, needs: 'keys:create' } },
  );

  const path = `/administrators/${administrator.id}`;
  const changed = await call<Administrator>('PATCH', path, { body: { roles: ['operator'], version: 1 } });
  t.match(changed.body.data, { roles: ['operator'], version: 2 });
  t.match(await call('GET', '/me', { headers }), { body: { data: { roles: ['operator'] } } });
  const limited = { name: 'limited', administratorId: administrator.id, roles: ['operator'] };
  const few = (await call<NewToken>('POST', '/tokens', { body: limited })).body.data.token;
  t.match(await call('PATCH', path, { body: { roles: ['auditor'], version: 1 } }), { status: 409 });
  await call('PATCH', path, { body: { roles: ['support'] } });
  t.equal((await call('GET', '/merchants', { headers })).status, 200);
  const withoutRoles = await call('GET', '/me', { headers: { authorization: `Bearer ${few}` } });
  t.match(withoutRoles, {
    status: 403,
    body: { message: 'This token has no role: the permission identity:read is needed' },
  });
  await call('PATCH', path, { body: { status: 'DISABLED' } });
  t.match(await call('GET', '/merchants', { headers }), { status: 401, body: { message: 'Invalid token' } });
  await call('PATCH', path, { body: { status: 'ACTIVE' } });
  t.equal((await call('POST', `/tokens/${token.id}/revoke`)).status, 200);
  t.equal((await call('GET', '/merchants', { headers })).status, 401);
});

onEachDatabase('a token ends, is limited to addresses and roles, and is announced before its end', async (t, url) => {
  const fixture = await registryFixture(t, url);
  const { app, call, time } = fixture;
  const roles = ['operator', 'auditor'];
  const { administrator, headers, token } = await createWithToken(
    fixture,
    { name: 'ci-deploy', kind: 'machine', roles },
    { roles: ['auditor'], sources: ['192.0.2.0/24', '2001:db8::7'], expiresInSeconds: 15 * 86_400 },
  );
  const from = (remoteAddress: string) => app.inject({ url: '/me', headers, remoteAddress });
  for (const address of ['127.0.0.1', '192.0.3.1', '2001:db8::8']) t.equal((await from(address)).statusCode, 401);
  t.equal((await from('2001:db8::7')).statusCode, 200);
  t.equal((await from('::ffff:192.0.2.9')).statusCode, 200);
  const first = await from('192.0.2.9');
  t.match(first.json(), { data: { roles: ['auditor'] } });
  t.equal(first.headers['x-token-expires-at'], undefined);
  time.advance(86_400_001);
  t.equal((await from('192.0.2.9')).headers['x-token-expires-at'], token.expiresAt);
  const own = { name: 'more', roles: ['operator'] };
  const post = (body: object) =>
    app.inject({ method: 'POST', url: '/tokens', headers, payload: body, remoteAddress: '192.0.2.9' });
  t.match((await post(own)).json(), {
    message: 'operator is not among the roles of the token or session that you use',
  });
  const wider = { name: 'more', sources: ['0.0.0.0/0'] };
  t.match((await post(wider)).json(), {
    message: '0.0.0.0/0 is not among the sources (allowed addresses) of your own token',
  });
  t.match((await post({ name: 'next' })).json(), { data: { roles: ['auditor'], sources: token.sources } });
  const page = await app.inject({ url: '/tokens', headers, remoteAddress: '192.0.2.9' });
  t.match(page.json(), {
    data: [
      { name: 'next', lastUsedAt: null },
      { name: 'test', lastUsedAt: '2026-01-16T12:00:00.001Z', lastSource: '192.0.2.9' },
    ],
  });
  t.notMatch(page.body, token.token);
  time.advance(14 * 86_400_000);
  t.equal((await from('192.0.2.9')).statusCode, 401, 'it has expired');
  t.match(await call('GET', `/tokens?administratorId=${administrator.id}`), { body: { meta: { total_records: 2 } } });
});

onEachDatabase('an active administrator has at most 50 valid tokens; the others get no more', async (t, url) => {
  const fixture = await registryFixture(t, url);
  const { app, call, time } = fixture;
  const day = 86_400;
  const { administrator, token } = await createWithToken(
    fixture,
    { name: 'sam', roles: ['support'] },
    { expiresInSeconds: 7 * day },
  );
  const create = (expiresInSeconds: number) =>
    call<NewToken>('POST', '/tokens', { body: { name: 'more', administratorId: administrator.id, expiresInSeconds } });
  const expiring = async () => /^registry_tokens_expiring (\d+)$/m.exec((await app.inject('/metrics')).body)?.[1];
  t.equal((await create(day)).status, 201);
  t.equal(await expiring(), '2');
  time.advance(day * 1000);
  t.equal(await expiring(), '1', 'an expired token is not announced');
  for (let valid = 1; valid < 50; valid += 1) t.equal((await create(30 * day)).status, 201);
  t.match(await create(30 * day), {
    status: 409,
    body: { message: /^The administrator has 50 valid tokens, the maximum: revoke one/ },
  });
  await call('POST', `/tokens/${token.id}/revoke`);
  t.equal((await create(7 * day)).status, 201, 'a revoked token makes room');
  t.equal(await expiring(), '1');
  await call('PATCH', `/administrators/${administrator.id}`, { body: { status: 'DISABLED' } });
  t.match(await create(day), { status: 409, body: { message: 'The administrator is disabled' } });
  t.equal(await expiring(), '0', 'a token of a disabled administrator is not announced');
});

onEachDatabase('administrators have unique names and roles that fit their merchant', async (t, url) => {
  const fixture = await registryFixture(t, url);
  const { call, createMerchant } = fixture;
  const { id } = await createMerchant();
  const create = (body: object) => call('POST', '/administrators', { body });
  t.equal((await create({ name: 'ada', roles: ['owner'] })).status, 201);
  const invalid: [body: object, status: number, message: RegExp][] = [
    [{ name: 'ada', roles: ['support'] }, 409, /another administrator has it already/],
    [{ name: 'Bootstrap', roles: ['owner'] }, 409, /reserved/],
    [{ name: 'registry', roles: ['owner'] }, 409, /reserved/],
    [{ name: 'a b', roles: ['owner'] }, 422, /^name must be a name of 1 to 64/],
    [{ name: 'x', roles: [] }, 422, /^roles must be a list of one or more of: owner, operator/],
    [{ name: 'x', roles: ['root'] }, 422, /^roles must be a list of one or more of: owner, operator/],
    [{ name: 'x', roles: ['merchant-admin'] }, 422, /^merchant-admin is a role for members of a merchant/],
    [{ name: 'x', roles: ['support'], merchantId: id }, 422, /^support is a platform role/],
    [{ name: 'x', roles: ['merchant-viewer'], merchantId: 'm_nobody' }, 422, /^No merchant has this id/],
    [{ name: 'x', roles: ['support'], issuer: 'https://id.example' }, 422, /must be given together/],
  ];
  for (const [body, status, message] of invalid) t.match(await create(body), { status, body: { message } });
  const identity = { issuer: 'https://id.example', subject: '7' };
  t.equal((await create({ name: 'bea', roles: ['merchant-viewer'], merchantId: id, ...identity })).status, 201);
  t.match(await create({ name: 'bob', roles: ['support'], ...identity }), {
    status: 409,
    body: { message: /Another/ },
  });
  t.match(await call('GET', '/administrators'), { body: { data: [{ name: 'ada' }, { name: 'bea', merchantId: id }] } });
  t.match(await call('GET', `/administrators?merchantId=${id}`), { body: { data: [{ name: 'bea' }] } });
});

t.test('the last owner cannot lock everybody out, but the shared token can remove an owner', async (t) => {
  const fixture = await registryFixture(t, 'sqlite::memory:');
  const { call } = fixture;
  const ada = await createWithToken(fixture, { name: 'ada', roles: ['owner'] });
  const path = `/administrators/${ada.administrator.id}`;
  for (const body of [{ status: 'DISABLED' }, { roles: ['operator'] }]) {
    const refused = await call('PATCH', path, { body, headers: ada.headers });
    t.match(refused, { status: 409, body: { message: 'This is the last owner: create another owner first' } });
  }
  await createWithToken(fixture, { name: 'bob', roles: ['owner'] });
  t.equal((await call('PATCH', path, { body: { roles: ['operator'] }, headers: ada.headers })).status, 200);
  t.equal((await call('PATCH', path, { body: { roles: ['owner'] } })).status, 200);
});

onEachDatabase('the first read of each hour is an event, and a read needs no write', async (t, url) => {
  const fixture = await registryFixture(t, url);
  const { app, call, createMerchant, time } = fixture;
  const { id } = await createMerchant();
  const ada = await createWithToken(fixture, { name: 'ada', roles: ['auditor'] });
  const reads = async (): Promise<unknown[]> => {
    await app.ready();
    const all = await call<{ actor: string }[]>('GET', `/events?action=merchant.read&merchantId=${id}`);
    return all.body.data.filter(({ actor }) => actor === 'ada').map((event) => Reflect.get(event, 'after') as unknown);
  };
  const read = () => call('GET', `/merchants/${id}/keys`, { headers: ada.headers });
  await read();
  await read();
  await t.resolves(settles(async () => (await reads()).length === 1));
  await call('GET', `/merchants/${id}`, { headers: ada.headers });
  await t.resolves(settles(async () => (await reads()).length === 2));
  t.same(await reads(), [{ what: 'allowlists' }, { what: 'keys' }]);
  time.advance(3_600_000);
  await read();
  await t.resolves(settles(async () => (await reads()).length === 3));
});

onEachDatabase('a read of a merchant or key that does not exist is no event', async (t, url) => {
  const fixture = await registryFixture(t, url);
  const { createKey, createMerchant, database, replica } = fixture;
  const { id } = await createMerchant();
  const { keyId } = await createKey(id);
  const { headers } = await createWithToken(fixture, { name: 'ada', roles: ['auditor'] });
  const unknown = ['unknown', 'x'.repeat(64), 'x'.repeat(65), '%0Ax%E2%80%AEm_9', '%00', `${id}%00`, id.toLowerCase()];
  for (const path of unknown.flatMap((name) => [`/merchants/${name}`, `/merchants/${name}/keys`, `/keys/${name}`]))
    t.equal((await replica.inject({ url: path, headers })).statusCode, 404, path);
  for (const path of [`/keys/${keyId}`, '/administrators'])
    t.equal((await replica.inject({ url: path, headers })).statusCode, 200, path);
  await replica.close();
  const reads = database.selectFrom('events').select(['merchant_id', 'after']).where('action', '=', 'merchant.read');
  t.same(await reads.orderBy('merchant_id').execute(), [
    { merchant_id: '', after: '{"what":"members"}' },
    { merchant_id: id, after: '{"what":"keys"}' },
  ]);
});

/** Polls until the condition holds. */
async function settles(holds: () => Promise<boolean>): Promise<void> {
  for (let count = 0; !(await holds()); count += 1) {
    if (count > 10_000) throw new Error('it does not settle');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

t.test('an option names the permissions that require a reason', async (t) => {
  const fixture = await registryFixture(t, 'sqlite::memory:', { reasonFor: new Set(['merchants:create']) });
  const post = (headers: Record<string, string>) =>
    fixture.call('POST', '/merchants', { body: { name: 'x' }, headers });
  t.match(await post({}), { status: 400, body: { message: /--reason/, data: { code: 'reason_required' } } });
  const attempts = await fixture.call<RegistryEvent[]>('GET', '/events?action=attempt.refused');
  t.match(attempts.body.data, [{ after: { route: '/merchants', needs: 'a reason' } }]);
  for (const reason of ['%', '%00', 'x'.repeat(201), encodeURIComponent('svc_live_abc')])
    t.match(await post({ 'x-reason': reason }), { status: 400, body: { message: /^x-reason must be/ } }, reason);
  t.equal((await post({ 'x-reason': 'new%20contract' })).status, 201);
});

t.test('a permission that only a field of the body needs can require a reason too', async (t) => {
  const { call, createMerchant } = await registryFixture(t, 'sqlite::memory:', {
    reasonFor: new Set(['merchants:write']),
  });
  const { id } = await createMerchant();
  const patch = (body: object, headers = {}) => call('PATCH', `/merchants/${id}`, { body, headers });
  for (const body of [{ status: 'SUSPENDED' }, { goLive: true }, { name: 'y' }])
    t.match(await patch(body), { status: 400, body: { data: { code: 'reason_required' } } }, JSON.stringify(body));
  t.equal(
    (await patch({ originAllowlist: ['shop.example.com'] })).status,
    200,
    'an allowlist needs another permission',
  );
  t.equal((await patch({ status: 'SUSPENDED' }, { 'x-reason': 'fraud' })).status, 200);
});

t.test('a right that is needed only to act for others can require a reason too', async (t) => {
  const { call } = await registryFixture(t, 'sqlite::memory:', { reasonFor: new Set(['administrators:write']) });
  const reason = { headers: { 'x-reason': 'new%20colleague' } };
  const body = { name: 'ada', roles: ['operator'] };
  const { id } = (await call<{ id: string }>('POST', '/administrators', { body, ...reason })).body.data;
  const wanted = { name: 'laptop', administratorId: id };
  const refused = { status: 400, body: { data: { code: 'reason_required' } } };
  t.match(await call('POST', '/tokens', { body: wanted }), refused);
  const { data } = (await call<{ id: string; token: string }>('POST', '/tokens', { body: wanted, ...reason })).body;
  t.match(await call('POST', `/tokens/${data.id}/revoke`), refused);
  const own = { headers: { authorization: `Bearer ${data.token}` } };
  t.equal((await call('POST', '/tokens', { body: { name: 'mine' }, ...own })).status, 201, 'an own token needs none');
  t.equal((await call('POST', `/tokens/${data.id}/revoke`, own)).status, 200);
  const attempts = await call<RegistryEvent[]>('GET', '/events?action=attempt.refused');
  t.match(attempts.body.data, [{ after: { needs: 'a reason' } }, { after: { needs: 'a reason' } }]);
});

t.test('a right that is needed only to see data of others can require a reason too', async (t) => {
  const { call } = await registryFixture(t, 'sqlite::memory:', { reasonFor: new Set(['administrators:read']) });
  const body = { name: 'ada', roles: ['auditor'] };
  const { id } = (await call<{ id: string }>('POST', '/administrators', { body })).body.data;
  const wanted = { name: 'laptop', administratorId: id };
  const { token } = (await call<{ token: string }>('POST', '/tokens', { body: wanted })).body.data;
  const authorization = `Bearer ${token}`;
  const reason = { headers: { 'x-reason': 'audit' } };
  for (const list of ['/tokens', '/sessions']) {
    const refused = { status: 400, body: { data: { code: 'reason_required' } } };
    t.match(await call('GET', `${list}?administratorId=${id}`), refused, list);
    t.match(await call('GET', list), refused, `${list} of all administrators`);
    t.equal((await call('GET', `${list}?administratorId=${id}`, reason)).status, 200, list);
    t.equal((await call('GET', list, { headers: { authorization } })).status, 200, `${list}: own data need none`);
  }
  t.same((await call('GET', '/search?q=ada')).body.data, [], 'a search omits what needs a reason');
  t.match((await call('GET', '/search?q=ada', reason)).body.data, [{ kind: 'administrator', id }]);
});
