import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { createLocalJWKSet, exportJWK, jwtVerify, SignJWT } from 'jose';
import t, { type Test } from 'tap';
import { openAssertionVerifier } from '../../src/cli/compose/services.js';
import { openIdentity } from '../../src/cli/compose/identity.js';
import { loadConfig } from '../../src/config/load.js';
import { acceptingCredential } from '../policy/fixtures.js';
import { merchantA, servicesFixture } from '../services/services-fixture.js';

/*
 * In a rolling upgrade gateways of the previous release call services of this one, and vice versa. The previous release
 * used one audience for all upstreams: gateways signed it, and services required it.
 */

const formerDefault = 'merchant-gateway';
const { privateKey, publicKey } = generateKeyPairSync('ed25519');

function configOf(t: Test, identity: string) {
  const directory = t.testdir({ 'key.pem': privateKey.export({ type: 'pkcs8', format: 'pem' }) });
  return loadConfig({ text: `identity: { signingKeyFile: ${directory}/key.pem, ${identity} }` });
}

/** The assertion about merchant A that a gateway of the previous release signs. */
function formerAssertion(audience: string | string[], key: KeyObject = privateKey): Promise<string> {
  return new SignJWT({ kid: 'key_1', environment: merchantA.environment })
    .setProtectedHeader({ alg: 'EdDSA', typ: 'JWT' })
    .setIssuer('merchant-gateway')
    .setAudience(audience)
    .setSubject(merchantA.merchantId)
    .setIssuedAt()
    .setExpirationTime('60s')
    .sign(key);
}

for (const [options, audience] of [
  ['', formerDefault],
  ['audience: payments.example', 'payments.example'],
] as const) {
  t.test(`services accept assertions of the previous release's gateways with the audience ${audience}`, async (t) => {
    const assertions = await openAssertionVerifier(configOf(t, options));
    const { call } = await servicesFixture(t, { assertions });
    const statusOf = async (assertion: string, path: string): Promise<number> =>
      (await call(merchantA, 'GET', path, { headers: { 'x-gateway-assertion': assertion } })).status;
    for (const path of ['/transactions', '/dev/payouts', '/dev/wallets', '/dev/customers']) {
      t.equal(await statusOf(await formerAssertion(audience), path), 200, path);
      t.equal(await statusOf(await formerAssertion([audience]), path), 200, `${path}, audience as a list`);
      t.equal(
        await statusOf(await formerAssertion('other.example'), path),
        403,
        `${path}, audience of another deployment`,
      );
    }
    const ofThisRelease = await formerAssertion(['transactions', audience]);
    t.equal(
      await statusOf(ofThisRelease, '/payouts'),
      403,
      "next to an upstream's name the former audience grants nothing",
    );
  });

  t.test(
    `with identity.audience ${audience}, services of the previous release accept this release's assertions`,
    async (t) => {
      const identity = await openIdentity(configOf(t, `audience: ${audience}`));
      const keys = createLocalJWKSet({ keys: [{ ...(await exportJWK(publicKey)), alg: 'EdDSA' }] });
      for (const upstream of ['transactions', 'payouts', 'customers']) {
        const assertion = await identity?.assertionFor(acceptingCredential('live'), upstream);
        // Verifies as the previous release does.
        const { payload } = await jwtVerify(assertion ?? '', (_header, token) => keys({ alg: 'EdDSA' }, token), {
          issuer: 'merchant-gateway',
          audience,
          algorithms: ['EdDSA', 'ES256'],
          requiredClaims: ['sub', 'exp', 'iat'],
        });
        t.match(payload, { sub: 'merchant-1', aud: [upstream, audience] });
      }
    },
  );
}
