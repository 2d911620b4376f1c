import { randomBytes } from 'node:crypto';
import { base64url, exportJWK, exportSPKI, generateKeyPair, type JWTHeaderParameters, SignJWT } from 'jose';
import t, { type Test } from 'tap';
import { noRules } from '../../src/registry/approvals/guard.js';
import { applyConfiguredRules } from '../../src/registry/approvals/rules.js';
import { ClaimRules } from '../../src/registry/sign-in/claims.js';
import { IdentityProvider } from '../../src/registry/sign-in/provider.js';
import type { DeviceSignIn, Session } from '../../src/registry/sign-in/schema.js';
import { until } from '../registry/manual-time.js';
import { registryFixture } from '../registry/registry-fixture.js';
import { startServer } from '../start-server.js';

const right = await generateKeyPair('RS256');
const wrong = await generateKeyPair('RS256');
const wrongJwk = await exportJWK(wrong.publicKey);
const publicText = new TextEncoder().encode(await exportSPKI(right.publicKey));

interface Forgery {
  readonly claims?: Record<string, unknown>;
  readonly header?: JWTHeaderParameters;
  readonly sign?: (token: SignJWT) => Promise<string>;
  readonly text?: (claims: object, signed: string) => string;
  readonly body?: string;
}

/** A provider that sends what an attacker wants, and a registry that trusts its issuer. */
async function fixture(t: Test, named: (issuer: string) => string = (issuer) => issuer) {
  let forgery: Forgery = {};
  const issuer = await startServer(t, (request, response) => {
    void respond(request.url ?? '').then((body) => {
      response.setHeader('content-type', 'application/json').end(body);
    });
  });
  const respond = async (path: string): Promise<string> => {
    if (path.startsWith('/.well-known')) {
      return JSON.stringify({
        ...{ issuer: named(issuer), jwks_uri: `${issuer}/keys`, token_endpoint: `${issuer}/token` },
        ...{ device_authorization_endpoint: `${issuer}/device` },
        id_token_signing_alg_values_supported: ['RS256', 'HS256', 'none'],
      });
    }
    if (path === '/keys')
      return JSON.stringify({ keys: [{ ...(await exportJWK(right.publicKey)), kid: 'a', alg: 'RS256' }] });
    if (path === '/device') {
      const uri = { verification_uri: 'https://example.com/device', user_code: 'ABCD' };
      return JSON.stringify({ ...uri, device_code: 'the device code', expires_in: 600, interval: 5 });
    }
    if (forgery.body !== undefined) return forgery.body;
    const now = Math.floor(Date.now() / 1000);
    const base = { iss: issuer, aud: 'registry', sub: 'ada', iat: now, exp: now + 300, groups: ['ops'] };
    const claims = { ...base, ...forgery.claims };
    const token = new SignJWT(claims).setProtectedHeader(forgery.header ?? { alg: 'RS256', kid: 'a' });
    const signed = await (forgery.sign?.(token) ?? token.sign(right.privateKey));
    const idToken = forgery.text?.(claims, signed) ?? signed;
    return JSON.stringify({
      access_token: 'access',
      token_type: 'bearer',
      refresh_token: 'refresh',
      id_token: idToken,
    });
  };
  const options = { issuer, clientId: 'registry', clientSecret: 'a-client-secret-of-the-tests', scope: 'openid' };
  const rules = new ClaimRules(
    [
      { claim: 'groups', value: 'ops', roles: ['operator'] },
      { claim: 'groups', value: 'owners', roles: ['owner'] },
    ],
    null,
  );
  const registry = await registryFixture(t, 'sqlite::memory:', {
    identityProvider: new IdentityProvider({ ...options, rules }, Date.now),
  });
  const { call, time } = registry;
  const redeem = (handle: string) => call<Session & { code?: string }>('POST', '/sign-in/token', { body: { handle } });
  const start = async (): Promise<string> => {
    const { body } = await call<DeviceSignIn>('POST', '/sign-in/device');
    time.advance(5_000);
    return body.data.handle;
  };
  const refresh = (handle: string | null) => call<{ code?: string }>('POST', '/sign-in/refresh', { body: { handle } });
  const causes = async (action = 'sign-in.failed') => {
    const { body } = await call<{ after: { cause?: string } }[]>('GET', `/events?action=${action}`);
    return body.data.map(({ after }) => after.cause);
  };
  const forge = (next: Forgery): void => void (forgery = next);
  return { ...registry, redeem, start, refresh, causes, forge };
}

const part = (value: object): string => base64url.encode(JSON.stringify(value));
const secret = new TextEncoder().encode('a-client-secret-of-the-tests');
/** Changes a part of a signed token: 0 the header, 1 the claims, 2 the signature. */
const withPart =
  (index: number, change: (text: string) => string): NonNullable<Forgery['text']> =>
  (_claims, signed) =>
    signed
      .split('.')
      .map((text, at) => (at === index ? change(text) : text))
      .join('.');
const past = Math.floor(Date.now() / 1000) - 3600;
const forgeries: Readonly<Record<string, Forgery>> = {
  'no signature (alg none)': { text: (claims) => `${part({ alg: 'none' })}.${part(claims)}.` },
  'another audience': { claims: { aud: 'another-client' } },
  'another issuer': { claims: { iss: 'https://evil.example.com' } },
  'an expired token': { claims: { iat: past - 300, exp: past } },
  'no expiry': { claims: { exp: undefined } },
  'a key that the provider does not publish': { sign: (token) => token.sign(wrong.privateKey) },
  'an unknown key id': { sign: (token) => token.sign(wrong.privateKey), header: { alg: 'RS256', kid: 'b' } },
  'HS256 with the public key as the secret': {
    sign: (token) => token.sign(publicText),
    header: { alg: 'HS256', kid: 'a' },
  },
  ...Object.fromEntries(
    ['None', 'NONE', ''].map((alg) => [
      `no signature (alg ${alg || 'empty'})`,
      { text: (claims: object) => `${part({ alg })}.${part(claims)}.` },
    ]),
  ),
  'no signature, although the header names RS256': { text: withPart(2, () => '') },
  'a truncated signature': { text: withPart(2, (text) => text.slice(0, -4)) },
  'the signature of other claims': { text: withPart(1, () => part({ iss: 'x', aud: 'registry', sub: 'eve' })) },
  'claims that were changed after signing': {
    text: withPart(1, (text) =>
      part({ ...(JSON.parse(Buffer.from(text, 'base64url').toString()) as object), sub: 'root' }),
    ),
  },
  'a header that was changed after signing': { text: withPart(0, () => part({ alg: 'RS256', kid: 'a', typ: 'JWT' })) },
  'HS256 with the client secret': { sign: (token) => token.sign(secret), header: { alg: 'HS256', kid: 'a' } },
  'PS256 for a key of RS256': { text: withPart(0, () => part({ alg: 'PS256', kid: 'a' })) },
  "the attacker's key in the header": {
    sign: (token) => token.sign(wrong.privateKey),
    header: { alg: 'RS256', kid: 'a', jwk: wrongJwk },
  },
  "the address of the attacker's keys in the header": {
    sign: (token) => token.sign(wrong.privateKey),
    header: { alg: 'RS256', kid: 'a', jku: 'https://evil.example.com/keys' },
  },
  'a key id that is a path': { sign: (token) => token.sign(wrong.privateKey), header: { alg: 'RS256', kid: '../a' } },
  'an unknown critical header': { text: withPart(0, () => part({ alg: 'RS256', kid: 'a', crit: ['x'], x: 1 })) },
  'an unencoded payload (b64)': {
    text: withPart(0, () => part({ alg: 'RS256', kid: 'a', crit: ['b64'], b64: false })),
  },
  'two parts': { text: (_claims, signed) => signed.split('.').slice(0, 2).join('.') },
  'four parts': { text: (_claims, signed) => `${signed}.a` },
  'five parts, as if encrypted': { text: (_claims, signed) => `${signed}.a.b` },
  'no token but a word': { text: () => 'token' },
  'claims that are a list': { text: withPart(1, () => base64url.encode('[1]')) },
  'claims that are no JSON': { text: withPart(1, () => base64url.encode('{')) },
  'no audience': { claims: { aud: undefined } },
  'an empty list of audiences': { claims: { aud: [] } },
  'audiences that name no authorized party': { claims: { aud: ['registry', 'another-client'] } },
  'another authorized party': { claims: { aud: ['registry', 'another-client'], azp: 'another-client' } },
  'an audience in capitals': { claims: { aud: 'REGISTRY' } },
  'no issuer': { claims: { iss: undefined } },
  'the issuer with a slash': { claims: { iss: 'http://127.0.0.1/' } },
  'a list of issuers': { claims: { iss: ['https://evil.example.com'] } },
  'no subject': { claims: { sub: undefined } },
  'a number as the subject': { claims: { sub: 1 } },
  'an expiry in words': { claims: { exp: 'tomorrow' } },
  'a negative expiry': { claims: { exp: -1 } },
  'no time of issue': { claims: { iat: undefined } },
  'a token of the future': { claims: { nbf: Math.floor(Date.now() / 1000) + 3600 } },
  'roles in capitals': { claims: { groups: ['OPS'] } },
  'roles as an object': { claims: { groups: { ops: true } } },
  'roles that contain the right one': { claims: { groups: ['ops-but-not-really', 'x ops'] } },
  'no roles': { claims: { groups: undefined } },
  'a number in place of the token': {
    body: JSON.stringify({ access_token: 'access', token_type: 'bearer', id_token: 1 }),
  },
  'no token type': { body: JSON.stringify({ access_token: 'access', id_token: 'a.b.c' }) },
  'another token type': { body: JSON.stringify({ access_token: 'access', token_type: 'mac', id_token: 'a.b.c' }) },
  'a list as the response': { body: '[]' },
  'null as the response': { body: 'null' },
  'an empty response': { body: '' },
  'a web page as the response': { body: '<html></html>' },
  'a response that is too long': {
    body: JSON.stringify({ access_token: 'a'.repeat(1_000_000), token_type: 'bearer' }),
  },
  'no id token': { body: JSON.stringify({ access_token: 'access', token_type: 'bearer' }) },
};

for (const [name, forgery] of Object.entries(forgeries)) {
  t.test(`an identity with ${name} is refused, with an event`, async (t) => {
    const { start, redeem, causes, forge, database, time } = await fixture(t);
    const handle = await start();
    forge(forgery);
    const { status, body } = await redeem(handle);
    // A response that no OpenID provider sends counts as an outage: the person may sign in again.
    t.match([status, body.data.code], status === 503 ? [503, 'provider_unavailable'] : [403, 'access_denied']);
    time.advance(60_000);
    await until(async () => (await causes()).length > 0);
    t.equal((await causes()).length, 1);
    t.same(await database.selectFrom('administrator_tokens').selectAll().execute(), []);
    t.same(await database.selectFrom('administrators').selectAll().execute(), []);
  });
}

t.test('the attacks differ from a sign-in that succeeds only in their forgery', async (t) => {
  const { start, redeem } = await fixture(t);
  t.match(await redeem(await start()), { status: 200, body: { data: { roles: ['operator'] } } });
});

t.test('metadata of another issuer (mix-up) starts no sign-in', async (t) => {
  for (const named of [
    () => 'https://evil.example.com',
    (issuer: string) => `${issuer}/tenant`,
    (issuer: string) => issuer.replace('http:', 'https:'),
    (issuer: string) => issuer.replace('127.0.0.1', 'localhost'),
  ]) {
    const { call, causes, time, database } = await fixture(t, named);
    const { status, body } = await call<{ code?: string }>('POST', '/sign-in/device');
    t.match([status, body.data.code], [503, 'provider_unavailable']);
    time.advance(60_000);
    await until(async () => (await causes()).length > 0);
    t.equal((await causes()).length, 1);
    t.same(await database.selectFrom('sign_ins').selectAll().execute(), []);
  }
});

t.test('an oversized response of the provider is not read to its end', async (t) => {
  const { start, redeem, forge } = await fixture(t);
  const handle = await start();
  forge({ body: JSON.stringify({ access_token: 'a'.repeat(1_000_000), token_type: 'bearer' }) });
  t.match(await redeem(handle), { status: 503, body: { data: { code: 'provider_unavailable' } } });
});

t.test('a broken response of the provider at a refresh does not end the sign-in', async (t) => {
  const { start, redeem, refresh, causes, forge, call } = await fixture(t);
  const { handle, token } = (await redeem(await start())).body.data;
  for (const body of ['', '{"access_token":"acc', '<html>Bad gateway</html>']) {
    forge({ body });
    t.match(await refresh(handle), { status: 503, body: { data: { code: 'provider_unavailable' } } }, body);
  }
  t.equal((await call('GET', '/me', { headers: { authorization: `Bearer ${token}` } })).status, 200);
  t.same(await causes('sign-in.ended'), []);
  forge({});
  t.equal((await refresh(handle)).status, 200, 'the next refresh succeeds');
});

t.test('claims make no owner while new owners need approval', async (t) => {
  const { start, redeem, refresh, causes, forge, database, time } = await fixture(t);
  const { handle } = (await redeem(await start())).body.data;
  const context = { database, clock: time, random: randomBytes };
  await applyConfiguredRules(context, { ...noRules, owners: true }, undefined);
  forge({ claims: { groups: ['owners'], sub: 'eve' } });
  t.match(await redeem(await start()), { status: 403, body: { data: { code: 'access_denied' } } });
  forge({ claims: { groups: ['owners'] } });
  t.equal((await refresh(handle)).status, 401, 'nor of an operator who refreshes the sign-in');
  t.same(await causes(), ['owner-needs-approval', 'owner-needs-approval']);
  await applyConfiguredRules(context, noRules, undefined);
  t.match(await redeem(await start()), { status: 200, body: { data: { roles: ['owner'] } } });
});

t.test('an owner who is the last of two owners made by claims makes no further owner alone', async (t) => {
  const { start, redeem, forge, call, database, time } = await fixture(t);
  const signIn = async (sub: string, group: string) => {
    forge({ claims: { sub, groups: [group] } });
    const { status, body } = await redeem(await start());
    t.equal(status, 200);
    return body.data.token;
  };
  const token = await signIn('ada', 'owners');
  await signIn('eve', 'owners');
  await signIn('eve', 'ops');
  await applyConfiguredRules({ database, clock: time, random: randomBytes }, { ...noRules, owners: true }, undefined);
  const body = { name: 'mallory', roles: ['owner'] };
  const headers = { authorization: `Bearer ${token}` };
  t.match(await call('POST', '/administrators', { headers, body }), {
    status: 409,
    body: { data: { code: 'approval_required' } },
  });
});

t.test('a refresh with the identity of another person ends the sign-in', async (t) => {
  const { start, redeem, refresh, causes, forge, call } = await fixture(t);
  const { handle, token } = (await redeem(await start())).body.data;
  forge({ claims: { sub: 'eve' } });
  t.equal((await refresh(handle)).status, 401);
  t.same(await causes(), ['other_subject']);
  t.equal((await call('GET', '/me', { headers: { authorization: `Bearer ${token}` } })).status, 401);
});

t.test('a replayed handle gets no session, and ends the one that it got', async (t) => {
  const { start, redeem, causes, call } = await fixture(t);
  const handle = await start();
  const { token } = (await redeem(handle)).body.data;
  t.equal((await redeem(handle)).status, 401);
  t.same([...(await causes()), ...(await causes('sign-in.ended'))], ['replayed-handle', 'replayed-handle']);
  t.equal((await call('GET', '/me', { headers: { authorization: `Bearer ${token}` } })).status, 401);
});

t.test('two requests with one handle at the same time get at most one session', async (t) => {
  const { start, redeem } = await fixture(t);
  const handle = await start();
  const results = await Promise.all([redeem(handle), redeem(handle)]);
  t.ok(results.filter(({ status }) => status === 200).length <= 1);
});

t.test('an unknown handle is an event, and guesses are limited', async (t) => {
  const { redeem, causes } = await fixture(t);
  const guess = 'a'.repeat(43);
  t.equal((await redeem(guess)).status, 401);
  t.same(await causes(), ['unknown-handle']);
  for (let count = 0; count < 20; count += 1) await redeem(guess);
  t.equal((await redeem(guess)).status, 429);
});

t.test('a token in the query string is not a credential', async (t) => {
  const { start, redeem, call } = await fixture(t);
  const { token } = (await redeem(await start())).body.data;
  t.equal((await call('GET', `/me?access_token=${token}`, { headers: { authorization: '' } })).status, 401);
});
