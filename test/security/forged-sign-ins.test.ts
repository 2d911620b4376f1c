import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { base64url, exportJWK, exportSPKI, generateKeyPair, SignJWT } from 'jose';
import t, { type Test } from 'tap';
import { ClaimRules } from '../../src/registry/sign-in/claims.js';
import { IdentityProvider } from '../../src/registry/sign-in/provider.js';
import type { DeviceSignIn, Session } from '../../src/registry/sign-in/schema.js';
import { registryFixture } from '../registry/registry-fixture.js';

const right = await generateKeyPair('RS256');
const wrong = await generateKeyPair('RS256');
const publicText = new TextEncoder().encode(await exportSPKI(right.publicKey));

interface Forgery {
  readonly claims?: Record<string, unknown>;
  readonly header?: { readonly alg: string; readonly kid: string };
  readonly sign?: (token: SignJWT) => Promise<string>;
  readonly text?: (claims: object) => string;
  readonly body?: string;
}

/** A provider that sends what an attacker wants, and a registry that trusts its issuer. */
async function fixture(t: Test) {
  let forgery: Forgery = {};
  const server = createServer((request, response) => {
    void respond(request.url ?? '').then((body) => {
      response.setHeader('content-type', 'application/json').end(body);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const respond = async (path: string): Promise<string> => {
    if (path.startsWith('/.well-known')) {
      return JSON.stringify({
        ...{ issuer, jwks_uri: `${issuer}/keys`, token_endpoint: `${issuer}/token` },
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
    const idToken = forgery.text?.(claims) ?? (await (forgery.sign?.(token) ?? token.sign(right.privateKey)));
    return JSON.stringify({
      access_token: 'access',
      token_type: 'bearer',
      refresh_token: 'refresh',
      id_token: idToken,
    });
  };
  const options = { issuer, clientId: 'registry', clientSecret: 'a-client-secret-of-the-tests', scope: 'openid' };
  const rules = new ClaimRules([{ claim: 'groups', value: 'ops', roles: ['operator'] }], null);
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
  'no id token': { body: JSON.stringify({ access_token: 'access', token_type: 'bearer' }) },
};

for (const [name, forgery] of Object.entries(forgeries)) {
  t.test(`an identity with ${name} is refused, with an event`, async (t) => {
    const { start, redeem, causes, forge, database } = await fixture(t);
    forge(forgery);
    t.match(await redeem(await start()), { status: 403, body: { data: { code: 'access_denied' } } });
    const found = await causes();
    t.equal(found.length, 1, String(found));
    t.same(await database.selectFrom('administrator_tokens').selectAll().execute(), []);
    t.same(await database.selectFrom('administrators').selectAll().execute(), []);
  });
}

t.test('the attacks differ from a sign-in that succeeds only in their forgery', async (t) => {
  const { start, redeem } = await fixture(t);
  t.match(await redeem(await start()), { status: 200, body: { data: { roles: ['operator'] } } });
});

t.test('an oversized response of the provider is not read to its end', async (t) => {
  const { start, redeem, forge } = await fixture(t);
  const handle = await start();
  forge({ body: JSON.stringify({ access_token: 'a'.repeat(1_000_000), token_type: 'bearer' }) });
  t.match(await redeem(handle), { status: 503, body: { data: { code: 'provider_unavailable' } } });
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
