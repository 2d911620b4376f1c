import { generateKeyPairSync } from 'node:crypto';
import { createLocalJWKSet, createRemoteJWKSet, decodeJwt, decodeProtectedHeader, jwtVerify } from 'jose';
import t from 'tap';
import { SignedIdentity } from '../../src/adapters/identity/signed-identity.js';
import type { SignedIdentityOptions } from '../../src/adapters/identity/signed-identity.js';
import { readPublicKeys, readSigningKey } from '../../src/adapters/identity/signing-keys.js';
import { openPublishedKeys } from '../../src/cli/compose/identity.js';
import { loadConfig } from '../../src/config/load.js';
import type { Credential } from '../../src/policy/facts.js';
import { compilePermissions } from '../../src/policy/permissions.js';
import { ask, liveKey, startTestGateway, startUpstream } from './harness.js';

const issuer = 'gateway.example';
const known = { issuer, audience: 'transactions' };

const ed25519 = () => generateKeyPairSync('ed25519');
const p256 = () => generateKeyPairSync('ec', { namedCurve: 'P-256' });

function privatePem({ privateKey }: ReturnType<typeof ed25519>): string {
  return privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}

/** The part of a tap test that identityOf uses. */
interface Tap {
  testdir(contents: Record<string, string>): string;
}

/** Returns a signed identity with its clock and its public keys. By default its key pair is new. */
async function identityOf(t: Tap, pair = ed25519(), changes: Partial<SignedIdentityOptions> = {}) {
  const clock = { time: Date.now(), now: () => clock.time };
  const signingKeyFile = `${t.testdir({ 'key.pem': privatePem(pair) })}/key.pem`;
  const signingKey = await readSigningKey(signingKeyFile);
  const publicKeys = await readPublicKeys([signingKeyFile]);
  const lifetimeSeconds = 60;
  const options = {
    issuer,
    audience: null,
    signingKey,
    publicKeys,
    clock,
    lifetimeSeconds,
    maxEntries: 10,
    ...changes,
  };
  return { identity: new SignedIdentity(options), clock, publicKeys };
}

function credentialOf(changes: Partial<Credential> = {}): Credential {
  return {
    keyId: 'key_1',
    keyLabel: null,
    merchantId: 'm_1',
    merchantName: 'Shop',
    environment: 'live',
    keyStatus: 'ACTIVE',
    expiresAt: null,
    graceEndsAt: null,
    permissions: compilePermissions(['*']),
    merchantStatus: 'ACTIVE',
    goLive: true,
    ipAllowlist: null,
    originAllowlist: null,
    ...{ keyStatusChangedAt: null, merchantStatusChangedAt: null, keyRevision: 1, merchantRevision: 1 },
    ...changes,
  };
}

t.test('an upstream can verify the identity with the keys that the management listener publishes', async (t) => {
  for (const pair of [ed25519(), p256()]) {
    const upstream = await startUpstream(t);
    const { identity } = await identityOf(t, pair);
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, identity });
    const headers = [
      ['x-api-key', liveKey],
      ['X-Gateway-Assertion', 'forged'],
      ['x_gateway_assertion', 'forged'],
    ] as const;
    t.equal((await ask(gateway, { headers })).status, 200);

    const [seen] = upstream.seen;
    const names = seen?.rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
    t.equal(
      names?.filter((name) => name.replaceAll('_', '-') === 'x-gateway-assertion').length,
      1,
      'one, and signed by the gateway',
    );
    const assertion = String(seen?.headers['x-gateway-assertion']);
    const jwks = new URL(`http://127.0.0.1:${gateway.management}/.well-known/jwks.json`);
    const { payload, protectedHeader } = await jwtVerify(assertion, createRemoteJWKSet(jwks), known);
    t.match(payload, { sub: 'm_1', kid: 'key_1', environment: 'live', iss: known.issuer, aud: known.audience });
    t.equal((payload.exp ?? 0) - (payload.iat ?? 0), 60);
    t.equal(protectedHeader.typ, 'JWT');

    const response = await fetch(jwks);
    t.equal(response.status, 200);
    const { keys } = (await response.json()) as { keys: Record<string, unknown>[] };
    t.equal(keys.length, 1);
    t.notOk('d' in (keys[0] ?? {}), 'no private key is published');
    t.equal(keys[0]?.kid, protectedHeader.kid);
  }
});

t.test('without a signing key there is neither an assertion nor a key set', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  t.equal((await ask(gateway, { headers: [['x-api-key', liveKey]] })).status, 200);
  t.notOk(upstream.seen[0]?.headers['x-gateway-assertion']);
  t.equal((await fetch(`http://127.0.0.1:${gateway.management}/.well-known/jwks.json`)).status, 404);
});

t.test('the first key is published before the gateway signs with it', async (t) => {
  const file = `${t.testdir({ 'key.pem': privatePem(ed25519()) })}/key.pem`;
  const configOf = (options: string) => loadConfig({ text: `identity: { ${options} }` });
  const publishedKeys = await openPublishedKeys(configOf(`publishedKeyFiles: [${file}]`));
  if (publishedKeys === null) throw new Error('no keys');
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, publishedKeys });
  const { keys } = (await (await fetch(`http://127.0.0.1:${gateway.management}/.well-known/jwks.json`)).json()) as {
    keys: Record<string, unknown>[];
  };
  t.same(
    keys.map(({ kid }) => kid),
    [(await readSigningKey(file)).keyId],
  );
  t.notOk('d' in (keys[0] ?? {}), 'no private key is published');
  t.equal((await ask(gateway, { headers: [['x-api-key', liveKey]] })).status, 200);
  t.notOk(upstream.seen[0]?.headers['x-gateway-assertion']);
  t.equal(await openPublishedKeys(configOf(`signingKeyFile: ${file}`)), null, 'the signer publishes its own keys');
  t.equal(await openPublishedKeys(configOf('')), null);
});

t.test('a request whose assertion cannot be signed is not forwarded', async (t) => {
  const upstream = await startUpstream(t);
  const identity = { assertionFor: () => Promise.reject(new Error('no entropy')), publicKeys: {} };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, identity });
  const response = await ask(gateway, { headers: [['x-api-key', liveKey]] });
  t.equal(response.status, 500);
  t.equal(response.body, '{"success":false,"message":"Internal error","data":null}');
  t.equal(upstream.seen.length, 0);
});

t.test('an assertion is reused for half of its lifetime, and only for the same key', async (t) => {
  const { identity, clock } = await identityOf(t);
  const first = await identity.assertionFor(credentialOf(), 'transactions');
  clock.time += 29_000;
  t.equal(await identity.assertionFor(credentialOf(), 'transactions'), first);
  clock.time += 2_000;
  const second = await identity.assertionFor(credentialOf(), 'transactions');
  t.not(second, first, 'half of its lifetime is over');
  clock.time -= 3_600_000;
  t.not(
    await identity.assertionFor(credentialOf(), 'transactions'),
    second,
    'a clock set back does not extend an assertion',
  );

  const claimsOf = async (changes: Partial<Credential>): Promise<unknown> => {
    const [, payload = ''] = (await identity.assertionFor(credentialOf(changes), 'transactions')).split('.');
    const { sub, kid, environment } = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Record<
      string,
      string
    >;
    return { sub, kid, environment };
  };
  t.same(await claimsOf({ merchantId: 'm_2' }), { sub: 'm_2', kid: 'key_1', environment: 'live' });
  t.same(await claimsOf({ environment: 'test' }), { sub: 'm_1', kid: 'key_1', environment: 'test' });
  t.same(await claimsOf({ keyId: 'key_2' }), { sub: 'm_1', kid: 'key_2', environment: 'live' });
});

t.test('an assertion is bound to its upstream, and cached per upstream', async (t) => {
  const { identity } = await identityOf(t);
  const audienceOf = async (name: string, of = identity): Promise<unknown> =>
    decodeJwt(await of.assertionFor(credentialOf(), name)).aud;
  for (const name of ['transactions', 'payouts', 'transactions']) t.equal(await audienceOf(name), name);
  const { identity: both } = await identityOf(t, ed25519(), { audience: 'merchant-gateway' });
  t.same(await audienceOf('payouts', both), ['payouts', 'merchant-gateway']);

  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, identity });
  for (const path of ['/v1/payouts', '/v1/dev/wallets', '/v1/dev/customers']) {
    await ask(gateway, { path, headers: [['x-api-key', liveKey]] });
  }
  const received = upstream.seen.map(({ headers }) => decodeJwt(String(headers['x-gateway-assertion'])).aud);
  t.same(received, ['payouts', 'payouts', 'customers']);
});

t.test('keys rotate with an overlap: one key set verifies assertions of both keys', async (t) => {
  const [old, next] = [ed25519(), p256()];
  const nextPublic = next.publicKey.export({ type: 'spki', format: 'pem' }).toString();
  const directory = t.testdir({
    'old.pem': privatePem(old),
    'next-public.pem': nextPublic,
    'next.pem': privatePem(next),
  });
  const published = await readPublicKeys(['old', 'next-public', 'old'].map((name) => `${directory}/${name}.pem`));
  t.equal(published.keys.length, 2, 'each key once');
  const kinds = published.keys.map(({ kty, alg, use }) => ({ kty, alg, use }));
  t.same(kinds, [
    { kty: 'OKP', alg: 'EdDSA', use: 'sig' },
    { kty: 'EC', alg: 'ES256', use: 'sig' },
  ]);
  for (const pair of [old, next]) {
    const { identity } = await identityOf(t, pair);
    const assertion = await identity.assertionFor(credentialOf(), 'transactions');
    t.match((await jwtVerify(assertion, createLocalJWKSet(published), known)).payload, { sub: 'm_1' });
    t.ok(published.keys.some(({ kid }) => kid === decodeProtectedHeader(assertion).kid));
  }
});

t.test('a file without a usable key is named in one sentence that does not quote it', async (t) => {
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  const directory = t.testdir({
    'rsa.pem': privatePem(rsa),
    'p384.pem': privatePem(p384),
    'text.pem': 'a secret that is no key',
    'public.pem': ed25519().publicKey.export({ type: 'spki', format: 'pem' }).toString(),
  });
  const cases: [string, string][] = [
    ['rsa.pem', 'The signing key FILE must be an Ed25519 or a P-256 key.'],
    ['p384.pem', 'The signing key FILE must be an Ed25519 or a P-256 key.'],
    ['text.pem', 'The signing key FILE must be an unencrypted private key in PEM format.'],
    ['public.pem', 'The signing key FILE must be an unencrypted private key in PEM format.'],
    ['none.pem', 'The signing key FILE cannot be read: there is no such file.'],
  ];
  for (const [name, sentence] of cases) {
    const file = `${directory}/${name}`;
    await t.rejects(readSigningKey(file), { name: 'OperatorError', message: sentence.replace('FILE', file) });
  }
});
