import { createLocalJWKSet, createRemoteJWKSet } from 'jose';
import { readPublicKeys } from '../adapters/identity/signing-keys.js';
import type { Config } from '../config/schema.js';
import { createRouteTable } from '../http/routes.js';
import { createAssertionVerifier } from '../services/assertion-verifier.js';
import type { AssertionVerifier } from '../services/assertion-verifier.js';
import { systemClock } from './system-clock.js';

const fetchTimeoutMilliseconds = 5_000;
/** What the former release signs for where `identity.audience` is absent. */
const formerDefaultAudience = 'merchant-gateway';

/**
 * Opens what the backing services check the gateway's signature with; null where the configuration names no key.
 * @throws OperatorError
 */
export async function openAssertionVerifier(config: Config): Promise<AssertionVerifier | null> {
  const { signingKeyFile, publishedKeyFiles, publicKeysUrl, issuer, audience } = config.identity;
  const routeOf = createRouteTable({ basePath: '', routes: config.routes });
  const upstreamOf = (path: string): string | null => {
    const found = routeOf(path);
    return 'route' in found ? found.route.upstream : null;
  };
  const former = audience ?? formerDefaultAudience;
  // An assertion for an upstream of that name would pass for one of the former release, at every other upstream.
  const formerAudience = Object.hasOwn(config.upstreams, former) ? null : former;
  const known = { issuer, upstreamOf, formerAudience, clock: systemClock };
  if (publicKeysUrl !== null) {
    const keys = createRemoteJWKSet(new URL(publicKeysUrl), { timeoutDuration: fetchTimeoutMilliseconds });
    return createAssertionVerifier({ keys, ...known });
  }
  if (signingKeyFile === null) return null;
  const keys = createLocalJWKSet(await readPublicKeys({ signingKeyFile, publishedKeyFiles }));
  return createAssertionVerifier({ keys, ...known });
}
