import { createHmac, generateKeyPairSync } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { createLocalJWKSet, createRemoteJWKSet, exportJWK, SignJWT } from 'jose';
import type { JWTVerifyGetKey } from 'jose';
import t from 'tap';
import { loadConfig } from '../../src/config/load.js';
import { createRouteTable } from '../../src/edge/request/routes.js';
import { createAssertionVerifier } from '../../src/services/assertion-verifier.js';
import { identityOf, merchantA, merchantB, sandboxOfA, servicesFixture } from './services-fixture.js';

const forbidden = {
  status: 403,
  body: { success: false, message: 'Forbidden', data: { code: 'forbidden', errors: [] } },
};
const now = Date.UTC(2026, 0, 15, 12);
const routeOf = createRouteTable({ basePath: '', routes: loadConfig({ text: '' }).routes });
const known = {
  issuer: 'gateway.example',
  upstreamOf: (path: string) => {
    const found = routeOf(path);
    return 'route' in found ? found.route.upstream : null;
  },
  formerAudience: 'merchant-gateway',
  clock: { now: () => now },
};

const ours = generateKeyPairSync('ed25519');
const another = generateKeyPairSync('ed25519');
const publicJwk = { ...(await exportJWK(ours.publicKey)), kid: 'ours', alg: 'EdDSA', use: 'sig' };
const ourKeys: JWTVerifyGetKey = createLocalJWKSet({ keys: [publicJwk] });

interface Token {
  readonly claims?: Record<string, unknown>;
  readonly header?: Record<string, unknown>;
  readonly key?: KeyObject;
}

/** Signs an assertion about merchant A as the gateway does, with the given changes. */
function assertionOf({ claims = {}, header = {}, key = ours.privateKey }: Token = {}): Promise<string> {
  const seconds = now / 1000;
  const usual = { iss: known.issuer, aud: 'transactions', sub: 'merchant_a', kid: 'key_1', environment: 'live' };
  return new SignJWT({ ...usual, iat: seconds, exp: seconds + 60, ...claims })
    .setProtectedHeader({ alg: 'EdDSA', kid: 'ours', typ: 'JWT', ...header })
    .sign(key);
}

function encoded(part: object): string {
  return Buffer.from(JSON.stringify(part)).toString('base64url');
}

t.test('a valid gateway assertion is accepted from any address', async (t) => {
  const { call } = await servicesFixture(t, { assertions: createAssertionVerifier({ keys: ourKeys, ...known }) });
  const headers = { 'x-gateway-assertion': await assertionOf() };
  for (const from of ['127.0.0.1', '10.2.3.4', '2001:db8::1']) {
    t.equal((await call(merchantA, 'GET', '/transactions', { from, headers })).status, 200, from);
  }
});

t.test('without a valid assertion every request gets 403, including requests from loopback', async (t) => {
  const { call } = await servicesFixture(t, { assertions: createAssertionVerifier({ keys: ourKeys, ...known }) });
  const publicPem = ours.publicKey.export({ type: 'spki', format: 'pem' }).toString();
  const good = await assertionOf();
  const [head = '', , signature = ''] = good.split('.');
  const seconds = now / 1000;
  const unsigned = `${encoded({ alg: 'none', kid: 'ours' })}.${good.split('.')[1] ?? ''}.`;
  const hmacInput = `${encoded({ alg: 'HS256', kid: 'ours' })}.${good.split('.')[1] ?? ''}`;
  const cases: [string, string | null][] = [
    ['no assertion', null],
    ['an empty assertion', ''],
    ['garbage', 'a.b.c'],
    ['two assertions', `${good}, ${good}`],
    ['an oversized value', 'a'.repeat(100_000 / 10)],
    ['unsigned (alg none)', unsigned],
    [
      'an HMAC keyed with the public key',
      `${hmacInput}.${createHmac('sha256', publicPem).update(hmacInput).digest('base64url')}`,
    ],
    ['changed claims with the original signature', `${head}.${encoded({ sub: 'merchant_a' })}.${signature}`],
    ['a signature by another key', await assertionOf({ key: another.privateKey })],
    ['an unpublished key', await assertionOf({ key: another.privateKey, header: { kid: 'theirs' } })],
    ['expired', await assertionOf({ claims: { iat: seconds - 70, exp: seconds - 10 } })],
    ['without an expiry', await assertionOf({ claims: { exp: undefined } })],
    ['not yet valid', await assertionOf({ claims: { nbf: seconds + 60 } })],
    ['of another issuer', await assertionOf({ claims: { iss: 'other.example' } })],
    ['for another upstream', await assertionOf({ claims: { aud: 'payouts' } })],
    ['without an audience', await assertionOf({ claims: { aud: undefined } })],
    ['an empty list as audience', await assertionOf({ claims: { aud: [] } })],
    [
      'for the former audience and another upstream',
      await assertionOf({ claims: { aud: ['payouts', 'merchant-gateway'] } }),
    ],
    ['subject differs from the merchant header', await assertionOf({ claims: { sub: 'merchant_b' } })],
    ['environment differs from the header', await assertionOf({ claims: { environment: 'test' } })],
    ['without an environment', await assertionOf({ claims: { environment: undefined } })],
    ['without a subject', await assertionOf({ claims: { sub: undefined } })],
  ];
  for (const [what, assertion] of cases) {
    const headers: Record<string, string> = assertion === null ? {} : { 'x-gateway-assertion': assertion };
    t.same(await call(merchantA, 'GET', '/transactions', { headers }), forbidden, what);
  }
  const headers = { 'x-gateway-assertion': good };
  for (const tenant of [merchantB, sandboxOfA, null]) {
    t.same(await call(tenant, 'GET', '/transactions', { headers }), forbidden, JSON.stringify(tenant));
  }
  t.equal((await call(merchantA, 'GET', '/transactions', { headers })).status, 200, 'the valid assertion is accepted');
  const pair = { ...identityOf(merchantA), 'x-merchant-id': 'merchant_a, merchant_a' };
  t.same(
    await call(null, 'GET', '/transactions', { headers: { ...pair, ...headers } }),
    forbidden,
    'the merchant header names the merchant twice',
  );
});

t.test('if the public keys cannot be fetched, the response is 503, not 403', async (t) => {
  const unreachable = createRemoteJWKSet(new URL('http://127.0.0.1:9/.well-known/jwks.json'), {
    timeoutDuration: 2000,
  });
  const { call, logged } = await servicesFixture(t, {
    assertions: createAssertionVerifier({ keys: unreachable, ...known }),
  });
  const headers = { 'x-gateway-assertion': await assertionOf() };
  t.same(await call(merchantA, 'GET', '/transactions', { headers }), {
    status: 503,
    body: { success: false, message: 'Service unavailable', data: { code: 'service_unavailable', errors: [] } },
  });
  t.match(logged, [
    {
      details: {
        err: { message: 'The public keys of the gateway could not be fetched. Check identity.publicKeysUrl.' },
      },
    },
  ]);
});
