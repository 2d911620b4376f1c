import { createPublicKey, randomBytes } from 'node:crypto';
import { decodeProtectedHeader, jwtVerify } from 'jose';
import t, { type Test } from 'tap';
import { roleNames, roles } from '../../src/registry/administrators/roles.js';
import { noRules } from '../../src/registry/approvals/guard.js';
import { applyConfiguredRules } from '../../src/registry/approvals/rules.js';
import { administratorsWith, newServicesTokenKey } from '../services/operators-fixture.js';
import { registryFixture } from './registry-fixture.js';

interface Signed {
  readonly token: string;
  readonly expiresAt: string;
  readonly permissions: readonly string[];
}

const key = await newServicesTokenKey();

async function fixtureWithKey(t: Test, further: object = {}) {
  const fixture = await registryFixture(t, 'sqlite::memory:', { servicesTokenKey: key, ...further });
  const { call, time } = fixture;
  const administrator = async (name: string, role: string, token: object = {}, more: object = {}) => {
    const body = { name, roles: [role], ...more };
    const { id } = (await call<{ id: string }>('POST', '/administrators', { body })).body.data;
    const given = { name: 'x', administratorId: id, ...token };
    const created = (await call<{ token: string; id: string }>('POST', '/tokens', { body: given })).body.data;
    return { id, tokenId: created.id, headers: { authorization: `Bearer ${created.token}` } };
  };
  const sign = async (headers: Record<string, string>, query = '') => {
    const { status, body } = await call<Signed>('POST', `/services-tokens${query}`, { headers });
    const currentDate = new Date(time.now());
    const verified = await jwtVerify(body.data.token, createPublicKey(key.privateKey), { currentDate });
    return { status, ...body.data, payload: verified.payload };
  };
  return { ...fixture, administrator, sign };
}

t.test('the registry signs who the caller is, and what they may do with wallets', async (t) => {
  const { administrator, sign, time } = await fixtureWithKey(t);
  const tess = await administrator('tess', 'treasurer');
  const signed = await sign(tess.headers);
  const now = Math.floor(time.now() / 1000);
  t.match(decodeProtectedHeader(signed.token), { alg: 'EdDSA', kid: key.keyId, typ: 'services-operator+jwt' });
  const permissions = ['wallets:read', 'wallets:write', 'wallets:fund'];
  const { jti, ...claims } = signed.payload;
  t.match(jti, /^jti_/);
  t.same(claims, {
    ...{ iss: 'merchant-gateway-registry', aud: 'services', sub: tess.id, iat: now, exp: now + 300 },
    ...{ name: 'tess', proof: `token:${tess.tokenId}`, permissions, reasonFor: [] },
  });
  t.match(signed, { status: 201, permissions, expiresAt: new Date((now + 300) * 1000).toISOString() });
  t.not((await sign(tess.headers)).payload.jti, jti, 'each token has its own id');

  const auditor = await sign((await administrator('rita', 'auditor')).headers);
  t.same(auditor.payload.permissions, ['wallets:read']);
  const shared = await sign({});
  t.match(shared.payload, { sub: 'bootstrap', name: 'bootstrap', proof: 'bootstrap', permissions });
});

t.test("a services token has the addresses of the caller's own token", async (t) => {
  const { administrator, sign } = await fixtureWithKey(t);
  const sources = ['127.0.0.1', '10.0.0.0/8'];
  t.same((await sign((await administrator('tess', 'treasurer', { sources })).headers)).payload.sources, sources);
  t.notOk('sources' in (await sign((await administrator('rita', 'auditor')).headers)).payload);
});

t.test('the services accept the longest token', async (t) => {
  const { administrator, call, database, sign, time } = await fixtureWithKey(t);
  const longest = Array.from({ length: 32 }, (_, index) => `2001:0db8:0000:0000:0000:ffff:1000:${1000 + index}/128`);
  const sources = ['127.0.0.1', ...longest.slice(1)];
  const ada = await administrator('a'.repeat(64), 'treasurer', { sources });
  const tom = await administrator('tom', 'treasurer');
  const code = (index: number): string =>
    `${'ABCDEFGHI'.charAt(index / 20)}${'QRSTUVWXYZABCDEFGHIJ'.charAt(index % 20)}N`;
  const currencies = Array.from({ length: 180 }, (_, index) => code(index));
  const fundingAbove = Object.fromEntries(currencies.map((currency) => [currency, Number.MAX_SAFE_INTEGER - 1]));
  t.equal(Object.keys(fundingAbove).length, 180);
  const context = { database, clock: time, random: randomBytes };
  await applyConfiguredRules(context, { ...noRules, fundingAbove }, undefined);
  const funding = {
    ...{ walletId: '0192f3a0-0000-7000-8000-000000000001', environment: 'live', currency: 'AQN' },
    ...{ amount: Number.MAX_SAFE_INTEGER, reference: 'r'.repeat(100) },
  };
  const { id } = (await call<{ id: string }>('POST', '/approvals', { body: funding, headers: ada.headers })).body.data;
  t.equal((await call('POST', `/approvals/${id}/approve`, { headers: tom.headers })).status, 200);
  const many = await sign(ada.headers, `?approvalId=${id}`);
  const services = await administratorsWith([key], time);
  t.match(await services(many.token), { fundingLimits: fundingAbove, approved: funding, sources });
  // Beside the token, a request has a reason of up to 1,800 characters.
  t.ok(many.token.length < 12_000, 'the request fits into the 16 KiB that Node accepts');
});

t.test("a services token never outlives the caller's own token", async (t) => {
  const { administrator, call, sign, time } = await fixtureWithKey(t);
  const { headers } = await administrator('tess', 'treasurer', { expiresInSeconds: 3600 });
  time.advance(3_480_000);
  const now = Math.floor(time.now() / 1000);
  t.match((await sign(headers)).payload, { iat: now, exp: now + 120 });
  time.advance(120_000);
  t.match(await call('POST', '/services-tokens', { headers }), { status: 401 });
});

t.test('who has no permission for wallets gets no token', async (t) => {
  const { administrator, call, createMerchant } = await fixtureWithKey(t);
  const support = await administrator('sam', 'support');
  t.match(await call('POST', '/services-tokens', { headers: support.headers }), {
    status: 403,
    body: { data: { code: 'permission_missing', permission: 'wallets:read' } },
  });
  const { id: merchantId } = await createMerchant();
  const member = await administrator('mo', 'merchant-admin', {}, { merchantId });
  t.match(await call('POST', '/services-tokens', { headers: member.headers }), { status: 404 });
  for (const name of roleNames) {
    const held = (roles[name].permissions as readonly string[]).filter((one) => one.startsWith('wallets:'));
    t.ok(held.length === 0 || held.includes('wallets:read'), `${name} gets a token for each permission it has`);
    if (roles[name].isOfMember) t.same(held, [], `${name} has no permission for wallets`);
  }
});

t.test('permissions whose use requires a reason are signed too', async (t) => {
  const { call, sign } = await fixtureWithKey(t, { reasonFor: new Set(['wallets:write', 'keys:revoke']) });
  t.same((await sign({})).payload.reasonFor, ['wallets:write']);
  const { call: ask } = await fixtureWithKey(t, { reasonFor: new Set(['wallets:read']) });
  t.match(await ask('POST', '/services-tokens'), { status: 400, body: { data: { code: 'reason_required' } } });
  t.equal((await ask('POST', '/services-tokens', { headers: { 'x-reason': 'audit' } })).status, 201);
  t.match(await call('POST', '/services-tokens?aud=registry'), { status: 422 });
});

t.test('without a key the registry signs none, and names the options', async (t) => {
  const { call } = await registryFixture(t, 'sqlite::memory:');
  t.match(await call('POST', '/services-tokens'), {
    status: 404,
    body: {
      message: /registry\.servicesToken and services\.operators\.registryKeys/,
      data: { code: 'services_tokens_off' },
    },
  });
});
