import { randomBytes } from 'node:crypto';
import t from 'tap';
import { digestOf, isTokenText, newToken } from '../../src/registry/administrators/token-text.js';
import { postLateBody } from '../registry/late-body.js';
import { until } from '../registry/manual-time.js';
import { registryFixture, token as sharedToken } from '../registry/registry-fixture.js';

interface FailedSignIn {
  readonly actor: string;
  readonly proof: string;
  readonly source: string;
  readonly after: { readonly cause: string; readonly tokenId: string | null; readonly omittedBefore?: number };
}

async function fixtureWithToken(t: Parameters<typeof registryFixture>[0], further: object = {}) {
  const fixture = await registryFixture(t, 'sqlite::memory:', { random: randomBytes });
  const { call } = fixture;
  const body = { name: 'ada', roles: ['owner'] };
  const { id } = (await call<{ id: string }>('POST', '/administrators', { body })).body.data;
  const given = { name: 'x', administratorId: id, ...further };
  const created = (await call<{ token: string; id: string }>('POST', '/tokens', { body: given })).body.data;
  const failures = async (): Promise<FailedSignIn[]> =>
    (await call<FailedSignIn[]>('GET', '/events?action=sign-in.failed&per_page=100')).body.data;
  const ask = (authorization: string, remoteAddress = '198.51.100.7') =>
    fixture.app.inject({ url: '/me', headers: { authorization }, remoteAddress });
  return { ...fixture, administratorId: id, ...created, failures, ask };
}

t.test('a changed, truncated or invented token is rejected, and each attempt is an event', async (t) => {
  const { ask, failures, token } = await fixtureWithToken(t);
  const changed = (at: number): string => `${token.slice(0, at)}${token[at] === 'A' ? 'B' : 'A'}${token.slice(at + 1)}`;
  const attempts: [bearer: string, cause: string][] = [
    [changed(10), 'malformed'],
    [token.slice(0, -1), 'malformed'],
    [token.slice(1), 'malformed'],
    [`${token}0`, 'malformed'],
    [token.toLowerCase(), 'malformed'],
    [digestOf(token), 'malformed'],
    [sharedToken.slice(0, -1), 'malformed'],
    [newToken(randomBytes), 'unknown'],
    ['a'.repeat(4096), 'malformed'],
  ];
  for (const [bearer] of attempts) {
    const response = await ask(`Bearer ${bearer}`);
    t.match(response.json(), { success: false, message: 'Invalid token', data: null });
    t.equal(response.statusCode, 401);
  }
  const stored = await failures();
  t.same(
    stored.map(({ after }) => after.cause).reverse(),
    attempts.map(([, cause]) => cause),
  );
  t.ok(
    stored.every(
      ({ source, actor, proof }) => source === '198.51.100.7' && actor === 'unknown' && proof === 'unproven',
    ),
  );
  const text = JSON.stringify(stored);
  for (const [bearer] of attempts) t.notOk(text.includes(bearer), 'no event contains what was sent');
});

t.test('an expired, revoked or misplaced token and that of a disabled administrator are rejected', async (t) => {
  const { administratorId, ask, call, failures, id, time, token } = await fixtureWithToken(t, {
    sources: ['198.51.100.7'],
    expiresInSeconds: 3600,
  });
  const bearer = `Bearer ${token}`;
  t.equal((await ask(bearer)).statusCode, 200);
  t.equal((await ask(bearer, '198.51.100.8')).statusCode, 401);
  await call('PATCH', `/administrators/${administratorId}`, { body: { status: 'DISABLED' } });
  t.equal((await ask(bearer)).statusCode, 401);
  await call('PATCH', `/administrators/${administratorId}`, { body: { status: 'ACTIVE' } });
  t.equal((await ask(bearer)).statusCode, 200);
  time.advance(3_600_000);
  t.equal((await ask(bearer)).statusCode, 401);
  await call('POST', `/tokens/${id}/revoke`);
  t.equal((await ask(bearer)).statusCode, 401);
  t.same(
    (await failures()).map(({ after }) => after).reverse(),
    ['source', 'disabled', 'expired', 'revoked'].map((cause) => ({ cause, tokenId: id })),
  );
});

t.test('a token counts in the authorization header only, and one that is too long is no token', async (t) => {
  const { app, ask, failures, token } = await fixtureWithToken(t);
  const encoded = `%6D${token.slice(1)}`;
  for (const url of [
    ...[`/me?token=${token}`, `/me?access_token=${token}`, `/me?authorization=Bearer%20${token}`],
    `/me?token=${encoded}`,
  ])
    t.equal((await app.inject(url)).statusCode, 401, url.replace(token, '…'));
  for (const headers of [
    { cookie: `token=${token}` },
    { 'x-api-key': token },
    { 'proxy-authorization': `Bearer ${token}` },
  ])
    t.match((await app.inject({ url: '/me', headers })).json(), {
      message:
        'A bearer token is required in the authorization header. Revoke the token that this request sent outside that header, because others may have read it',
    });
  const besides = { url: `/events?claimed=${token}`, headers: { authorization: `Bearer ${token}` } };
  t.equal((await app.inject(besides)).statusCode, 401, 'a URL with a token, beside a valid header');
  const word = { url: '/merchants?name=mga_shop', headers: besides.headers };
  t.not((await app.inject(word)).statusCode, 401, 'the prefix alone is no token');
  for (const scheme of ['Basic', 'Token', 'Bearer:', '']) t.equal((await ask(`${scheme} ${token}`)).statusCode, 401);
  t.match((await ask(`Bearer ${'a'.repeat(4097)}`)).json(), { message: 'A bearer token is required' });
  t.equal((await app.inject('/me')).statusCode, 401, 'a request without any credential is no attempt');
  const stored = await failures();
  t.same(stored.map(({ after }) => after.cause).toReversed(), [
    ...Array.from({ length: 8 }, () => 'misplaced'),
    ...Array.from({ length: 5 }, () => 'malformed'),
  ]);
  t.notOk(JSON.stringify(stored).includes(token));
});

t.test('a source with many failures is throttled, but never a valid token', async (t) => {
  const { ask, failures, time, token } = await fixtureWithToken(t);
  const statuses = [];
  for (let count = 0; count < 25; count += 1) statuses.push((await ask(`Bearer ${newToken(randomBytes)}`)).statusCode);
  t.same(statuses, [...Array.from({ length: 20 }, () => 401), ...Array.from({ length: 5 }, () => 429)]);
  const throttled = await ask(`Bearer ${newToken(randomBytes)}`);
  t.match(throttled.json(), { data: { code: 'too_many_attempts' } });
  t.equal(throttled.headers['retry-after'], '60');
  t.equal((await ask(`Bearer ${token}`)).statusCode, 200, 'from the same address');
  t.equal((await ask(`Bearer ${newToken(randomBytes)}`, '198.51.100.8')).statusCode, 401, 'from another address');
  t.equal((await failures()).length, 21, 'a throttled attempt is no further event');
  time.advance(60_000);
  t.equal((await ask(`Bearer ${newToken(randomBytes)}`)).statusCode, 401);
});

t.test('attempts from many addresses cannot fill the trail, and the next event counts what it lacks', async (t) => {
  const { ask, call, time } = await fixtureWithToken(t);
  for (let count = 0; count < 650; count += 1)
    await ask(`Bearer ${newToken(randomBytes)}`, `203.0.${count >> 8}.${count & 255}`);
  const list = async () => call<FailedSignIn[]>('GET', '/events?action=sign-in.failed&per_page=1');
  t.match((await list()).body, { meta: { total_records: 600 } });
  time.advance(60_000);
  await ask(`Bearer ${newToken(randomBytes)}`);
  t.match((await list()).body, { data: [{ after: { omittedBefore: 50 } }], meta: { total_records: 601 } });
});

t.test(
  'no response, event or database row contains a token, and each token is random and has a checksum',
  async (t) => {
    const { call, database, token } = await fixtureWithToken(t);
    const rows = JSON.stringify(await database.selectFrom('administrator_tokens').selectAll().execute());
    t.notOk(rows.includes(token.slice(4, -8)));
    t.ok(rows.includes(digestOf(token)));
    for (const path of ['/tokens', '/events?per_page=100', '/administrators', '/me', '/exports'])
      t.notOk(JSON.stringify((await call('GET', path)).body).includes(token.slice(4, -8)), path);
    const many = new Set(Array.from({ length: 1000 }, () => newToken(randomBytes)));
    t.equal(many.size, 1000);
    t.ok([...many].every(isTokenText));
    t.notOk([...many].some((one) => isTokenText(one.replace(/.$/, (last) => (last === '0' ? '1' : '0')))));
  },
);

t.test('the shared token is not accepted while registry.bootstrap is off', async (t) => {
  const { app, call } = await registryFixture(t, 'sqlite::memory:', { token: null });
  for (const path of ['/merchants', '/me']) t.match(await call('GET', path), { status: 401 }, path);
  t.equal((await app.inject({ url: '/me', headers: { authorization: 'Bearer ' } })).statusCode, 401);
  t.equal((await app.inject({ url: '/me', headers: { authorization: 'Bearer null' } })).statusCode, 401);
});

t.test('requests with an oversized header section are one event a minute, with their number', async (t) => {
  const { app, call, time } = await registryFixture(t, 'sqlite::memory:');
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  for (let count = 0; count < 3; count += 1) {
    const response = await fetch(`${url}/me`, { headers: { authorization: `Bearer ${'a'.repeat(20_000)}` } });
    t.equal(response.status, 431);
  }
  time.advance(60_000);
  const events = async () => (await call<FailedSignIn[]>('GET', '/events?action=sign-in.failed')).body.data;
  await until(async () => (await events()).length > 0);
  t.match(await events(), [
    { actor: 'unknown', source: '127.0.0.1', after: { cause: 'headers_too_large', refusals: 3 } },
  ]);
});

t.test('a request whose body arrives after a revocation, a disabling or a loss of roles changes nothing', async (t) => {
  const { administratorId, app, call, createKey, createMerchant, database, failures } = await fixtureWithToken(t);
  const merchant = await createMerchant();
  const { keyId } = await createKey(merchant.id);
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const late = async (path: string, body: string, act: (tokenId: string) => Promise<unknown>) => {
    const given = { body: { name: 'late', administratorId } };
    const { id, token } = (await call<{ id: string; token: string }>('POST', '/tokens', given)).body.data;
    const lastUse = database.selectFrom('administrator_tokens').select('last_used_at').where('id', '=', id);
    return postLateBody(`${url}${path}`, { authorization: `Bearer ${token}` }, body, async () => {
      await until(async () => (await lastUse.executeTakeFirstOrThrow()).last_used_at !== null);
      await act(id);
    });
  };
  const change = (body: object) => call('PATCH', `/administrators/${administratorId}`, { body });
  const keys = `/merchants/${merchant.id}/keys`;
  const live = JSON.stringify({ environment: 'live' });
  t.equal(await late(keys, live, (id) => call('POST', `/tokens/${id}/revoke`)), 401, 'revoked');
  t.equal(await late(keys, live, () => change({ roles: ['support'] })), 403, 'without the permission');
  t.equal(await late(`/keys/${keyId}/revoke`, '', () => change({ status: 'DISABLED' })), 401, 'disabled, empty body');
  t.same(
    (await failures()).map(({ after }) => after.cause),
    ['disabled', 'revoked'],
  );
  t.equal((await call<unknown[]>('GET', '/events?action=key.created')).body.data.length, 1, 'only that of the fixture');
  t.same((await call('GET', '/events?action=key.revoked')).body.data, []);
});
