import { createHmac, createPublicKey, generateKeyPairSync, type KeyObject, randomUUID } from 'node:crypto';
import { exportJWK, SignJWT } from 'jose';
import t, { type Test } from 'tap';
import { SignedIdentity } from '../../src/adapters/identity/signed-identity.js';
import { administratorsWith, newServicesTokenKey, operatorsOf, operatorsToken } from '../services/operators-fixture.js';
import { balanceOf, servicesFixture } from '../services/services-fixture.js';

// Each forged token asks to fund a wallet. It must get a 401, and no money may move.

const now = Date.UTC(2026, 0, 15, 12);
const seconds = now / 1000;
const key = await newServicesTokenKey();
const nextKey = await newServicesTokenKey();

const header = { alg: 'EdDSA', kid: key.keyId, typ: 'services-operator+jwt' };
const claims = {
  ...{
    iss: 'merchant-gateway-registry',
    aud: 'services',
    sub: 'adm_1',
    jti: 'jti_1',
    iat: seconds,
    exp: seconds + 300,
  },
  ...{ name: 'tess', proof: 'token:tok_1', reasonFor: [] },
  permissions: ['wallets:read', 'wallets:write', 'wallets:fund'],
};

/** Signs the claims with changes; an undefined value removes one. */
function sign(
  changed: Readonly<Record<string, unknown>> = {},
  {
    privateKey = key.privateKey,
    ...more
  }: { readonly privateKey?: KeyObject; readonly [parameter: string]: unknown } = {},
) {
  const all: Readonly<Record<string, unknown>> = { ...claims, ...changed };
  const payload = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  return new SignJWT(payload).setProtectedHeader({ ...header, ...more }).sign(privateKey);
}

const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');

/** Where requests of these tests come from. */
const here = '127.0.0.1';

async function fixture(t: Test, tokens: object = {}) {
  const services = await servicesFixture(t);
  const administrators = await administratorsWith([key, nextKey], { now: () => now });
  const { app, open, operate } = operatorsOf(t, services, { administrators, ...tokens });
  const walletId = await open('merchant_a');
  const fund = async (bearer: string | null, url = '', headers: Record<string, string> = {}, from = here) => {
    const order = { amount: 5, currency: 'NGN', environment: 'live', reference: randomUUID(), reason: 'Forged' };
    const response = await app.inject({
      ...{ method: 'POST', remoteAddress: from },
      url: `/wallets/${walletId}/fund${url}`,
      headers: { 'content-type': 'application/json', ...(bearer !== null && { authorization: bearer }), ...headers },
      payload: JSON.stringify(order),
    });
    return { status: response.statusCode, body: response.json<object>() };
  };
  const balance = () => balanceOf(services.database, walletId);
  return { ...services, operators: app, operate, fund, balance, walletId };
}

t.test('a token of the registry is accepted from each of two keys, so that keys can be rotated', async (t) => {
  const { fund, balance } = await fixture(t);
  t.match(await fund(`Bearer ${await sign()}`), { status: 201, body: { data: { actor: 'tess' } } });
  const next = await sign({ sub: 'adm_2' }, { privateKey: nextKey.privateKey, kid: nextKey.keyId });
  t.equal((await fund(`Bearer ${next}`)).status, 201);
  t.equal((await fund(`Bearer ${await sign({ iat: seconds - 330, exp: seconds - 30 })}`)).status, 201, 'slow clock');
  t.equal((await fund(`Bearer ${await sign({ iat: seconds + 30, exp: seconds + 330 })}`)).status, 201, 'fast clock');
  t.equal(await balance(), 20);
});

t.test('an approval moves only the money that was approved, once', async (t) => {
  const { operators, balance, walletId } = await fixture(t);
  const order = { environment: 'live', currency: 'NGN', amount: 900, reference: 'deposit-1' };
  const approved = { ...order, walletId };
  const fund = async (changes: object, given: object, kind = 'fund') => {
    const response = await operators.inject({
      method: 'POST',
      url: `/wallets/${walletId}/${kind}`,
      headers: { authorization: `Bearer ${await sign({ fundingLimits: { NGN: 100 }, ...given })}` },
      payload: { ...order, reason: 'Deposit', ...changes },
    });
    return [response.statusCode, response.json<{ data: { code?: string } | null }>().data?.code];
  };
  const refused = [403, 'approval_required'];
  t.same(await fund({}, {}), refused);
  t.same(await fund({ amount: 101 }, {}), refused);
  t.same(await fund({ amount: 1 }, { fundingLimits: {} }), refused, 'a currency without a limit');
  for (const changes of [{ amount: 901 }, { amount: 899 }, { reference: 'deposit-2' }])
    t.same(await fund(changes, { approved }), refused, JSON.stringify(changes));
  for (const other of [{ walletId: randomUUID() }, { currency: 'GHS' }, { environment: 'test' }])
    t.same(await fund({}, { approved: { ...approved, ...other } }), refused, JSON.stringify(other));
  for (const wrong of [null, [], 'all', { ...approved, amount: '900' }, {}])
    t.same((await fund({}, { approved: wrong }))[0], 401, JSON.stringify(wrong));
  for (const wrong of [null, [1], { NGN: '900' }, { NGN: -1 }])
    t.same((await fund({}, { fundingLimits: wrong }))[0], 401, JSON.stringify(wrong));
  t.equal(await balance(), 0);
  t.same(await fund({ amount: 100, reference: 'deposit-3' }, {}), [201, undefined], 'at the limit');
  t.same(await fund({}, { approved }), [201, undefined]);
  t.same(await fund({}, { approved }), [200, undefined]);
  t.same(await fund({}, {}), [200, undefined], 'a repeat moves nothing, so it needs no approval');
  t.same(await fund({ reference: 'deposit-4' }, {}), refused, 'the same under another reference');
  t.equal(await balance(), 1000, 'moved once');
  t.same(await fund({ reference: 'back' }, {}, 'withdraw'), [201, undefined], 'taking money back needs no approval');
});

t.test('a forged, expired or misused token moves no money', async (t) => {
  const { fund, balance } = await fixture(t);
  const valid = await sign();
  const [head = '', body = '', signature = ''] = valid.split('.');
  const publicKey = createPublicKey(key.privateKey);
  const hmacHead = encoded({ ...header, alg: 'HS256' });
  const hmacWith = (secret: string | Buffer): string =>
    `${hmacHead}.${body}.${createHmac('sha256', secret).update(`${hmacHead}.${body}`).digest('base64url')}`;
  const other = generateKeyPairSync('ed25519').privateKey;
  const gateway = new SignedIdentity({
    signingKey: { ...key, algorithm: 'EdDSA' },
    publicKeys: { keys: [] },
    ...{ issuer: 'merchant-gateway-registry', audience: null, lifetimeSeconds: 60, maxEntries: 10 },
    clock: { now: () => now },
  });
  const credential = { keyId: 'key_1', merchantId: 'merchant_a', environment: 'live' };
  const forged: Record<string, string> = {
    'alg none, without a signature': `${encoded({ ...header, alg: 'none' })}.${body}.`,
    'alg none, with the signature': `${encoded({ ...header, alg: 'none' })}.${body}.${signature}`,
    'HS256 with the PEM of the public key': hmacWith(publicKey.export({ type: 'spki', format: 'pem' })),
    'HS256 with the DER of the public key': hmacWith(publicKey.export({ type: 'spki', format: 'der' })),
    'HS256 with the raw public key': hmacWith(Buffer.from((await exportJWK(publicKey)).x ?? '', 'base64url')),
    'the signature of another key': await sign({}, { privateKey: other }),
    'another key and its own id': await sign({}, { privateKey: other, kid: 'unknown' }),
    'a key in the header': await sign({}, { privateKey: other, jwk: await exportJWK(createPublicKey(other)) }),
    'changed permissions': `${head}.${encoded({ ...claims, permissions: ['wallets:fund'] })}.${signature}`,
    'a changed name': `${head}.${encoded({ ...claims, name: 'ada' })}.${signature}`,
    'a truncated signature': valid.slice(0, -2),
    'no signature': `${head}.${body}`,
    'the audience of an upstream': await sign({ aud: 'payouts' }),
    'several audiences': await sign({ aud: ['services', 'payouts'] }),
    'no audience': await sign({ aud: undefined }),
    'another issuer': await sign({ iss: 'merchant-gateway' }),
    'no issuer': await sign({ iss: undefined }),
    expired: await sign({ iat: seconds - 362, exp: seconds - 62 }),
    'issued long ago, with a late expiry': await sign({ iat: seconds - 400, exp: seconds + 300 }),
    'issued in the future': await sign({ iat: seconds + 62, exp: seconds + 300 }),
    'not valid yet': await sign({ nbf: seconds + 62 }),
    'no expiry': await sign({ exp: undefined }),
    'no time of issue': await sign({ iat: undefined }),
    'no id': await sign({ jti: undefined }),
    'no administrator': await sign({ sub: undefined }),
    'no name': await sign({ name: undefined }),
    'a name with an API key': await sign({ name: 'svc_live_abc' }),
    'an unknown proof': await sign({ proof: 'registry' }),
    'permissions as a text': await sign({ permissions: 'wallets:fund' }),
    'the type of an assertion': await sign({}, { typ: 'JWT' }),
    'no type': await sign({}, { typ: undefined }),
    "a merchant's assertion by the gateway, even with the same key and issuer": await gateway.assertionFor(
      credential as Parameters<SignedIdentity['assertionFor']>[0],
      'services',
    ),
    'a long text': 'a'.repeat(5000),
    'a token above the limit of 12,288 characters': await sign({ padding: 'a'.repeat(10_000) }),
    'a token of an administrator': `mga_${'a'.repeat(51)}`,
  };
  for (const [what, bearer] of Object.entries(forged)) {
    const message = 'Invalid token';
    t.match(await fund(`Bearer ${bearer}`), { status: 401, body: { success: false, message, data: null } }, what);
  }
  t.equal(await balance(), 0);
  t.match(await fund(`Bearer ${valid}`), { status: 201 }, 'the token that they were made from is valid');
});

t.test('a token that is limited to addresses moves no money from another one', async (t) => {
  const { fund, balance } = await fixture(t);
  const limited = async (sources: unknown, from: string, headers: Record<string, string> = {}): Promise<number> =>
    (await fund(`Bearer ${await sign({ sources })}`, '', headers, from)).status;
  const office = ['192.0.2.7', '198.51.100.0/24', '2001:db8::/32'];
  for (const from of ['192.0.2.8', '198.51.101.1', '2001:db9::1', '127.0.0.1', '::ffff:192.0.2.8'])
    t.equal(await limited(office, from), 401, from);
  t.equal(await limited(office, '10.0.0.1', { 'x-forwarded-for': '192.0.2.7' }), 401, 'a header names no address');
  for (const wrong of [null, [], 'all', '192.0.2.7', [1], ['all'], ['192.0.2.7', ''], Array(33).fill('192.0.2.7')])
    t.equal(await limited(wrong, '192.0.2.7'), 401, JSON.stringify(wrong));
  t.equal(await balance(), 0);
  for (const from of ['192.0.2.7', '198.51.100.255', '2001:db8::1', '::ffff:192.0.2.7'])
    t.equal(await limited(office, from), 201, from);
  t.equal(await limited(undefined, '192.0.2.8'), 201, 'a registry of an earlier release signs no addresses');
  t.equal(await balance(), 25);
});

t.test('the address that a registry signs for events is an address, and lifts no limit to addresses', async (t) => {
  const { fund, balance } = await fixture(t);
  const from = async (claimed: Readonly<Record<string, unknown>>): Promise<number> =>
    (await fund(`Bearer ${await sign(claimed)}`, '', {}, '192.0.2.7')).status;
  for (const wrong of ['', 'all', 1, [], ['203.0.113.9'], '203.0.113.0/24', '203.0.113.999', 'fe80::1%eth0'])
    t.equal(await from({ clientAddress: wrong }), 401, JSON.stringify(wrong));
  for (const wrong of ['203.0.113.9, 10.0.0.1', '203.0.113.9\n', '0'.repeat(5000)])
    t.equal(await from({ clientAddress: wrong }), 401, JSON.stringify(wrong));
  t.equal(await from({ clientAddress: '203.0.113.9', sources: ['203.0.113.9'] }), 401);
  t.equal(await balance(), 0);
  for (const valid of ['203.0.113.9', '2001:db8::1', null])
    t.equal(await from({ clientAddress: valid }), 201, JSON.stringify(valid));
  t.equal(await from({ clientAddress: '203.0.113.9', sources: ['192.0.2.7'] }), 201);
});

t.test('a token counts in the authorization header only, and never from a request through the gateway', async (t) => {
  const { fund, balance } = await fixture(t);
  const token = await sign();
  for (const query of [`?token=${token}`, `?access_token=${token}`, `?authorization=Bearer%20${token}`])
    t.match(await fund(null, query), { status: 401, body: { message: 'A bearer token is required' } });
  t.equal((await fund(`Bearer ${token}`, `?token=${token}`)).status, 422);
  for (const headers of [{ cookie: `token=${token}` }, { 'x-gateway-assertion': token }, { 'x-api-key': token }])
    t.not((await fund(null, '', headers)).status, 201);
  t.equal((await fund(`Bearer ${token}`, '', { 'x-gateway-assertion': token })).status, 403);
  t.equal((await fund(`Bearer ${token}`, '', { 'x-merchant-id': 'merchant_a' })).status, 403);
  for (const scheme of ['Basic', 'DPoP', 'Token', '']) t.equal((await fund(`${scheme} ${token}`)).status, 401);
  t.equal(await balance(), 0);
});

t.test('an administrator cannot take another name, and a missing permission is a 403 that names it', async (t) => {
  const { fund, balance } = await fixture(t);
  const named = await fund(`Bearer ${await sign()}`, '', { 'x-actor': 'ada' });
  t.match(named, { status: 201, body: { data: { actor: 'tess' } } });
  for (const permissions of [[], ['wallets:read'], ['wallets:write', 'wallets:Fund'], ['*']])
    t.match(await fund(`Bearer ${await sign({ permissions })}`), {
      status: 403,
      body: {
        message: 'tess lacks the permission wallets:fund, which this request needs',
        data: { code: 'permission_missing' },
      },
    });
  t.equal(await balance(), 5);
});

t.test('each kind of token is rejected while it is not configured', async (t) => {
  const shared = `Bearer ${operatorsToken}`;
  const bySharedOnly = await fixture(t, { administrators: null });
  t.equal((await bySharedOnly.fund(`Bearer ${await sign()}`)).status, 401);
  t.equal((await bySharedOnly.fund(shared)).status, 201);
  const services = await servicesFixture(t);
  const administrators = await administratorsWith([key], { now: () => now });
  const { app } = operatorsOf(t, services, { administrators, token: null });
  const list = async (authorization: string) =>
    (await app.inject({ url: '/wallets', headers: { authorization } })).statusCode;
  t.equal(await list(shared), 401);
  for (const text of ['null', 'undefined', '']) t.equal(await list(`Bearer ${text}`), 401, text);
  t.equal(await list(`Bearer ${await sign()}`), 200);
});
