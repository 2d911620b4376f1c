import { createLocalJWKSet, createRemoteJWKSet } from 'jose';
import { readPublicKeys } from '../adapters/identity/signing-keys.js';
import type { Config } from '../config/schema.js';
import { createAssertionVerifier } from '../services/assertion-verifier.js';
import type { AssertionVerifier } from '../services/assertion-verifier.js';
import { systemClock } from './system-clock.js';

const fetchTimeoutMilliseconds = 5_000;

/**
 * Opens what the backing services check the gateway's signature with; null where the configuration names no key.
 * @throws OperatorError
 */
export async function openAssertionVerifier({ identity }: Config): Promise<AssertionVerifier | null> {
  const { signingKeyFile, publishedKeyFiles, publicKeysUrl, issuer, audience } = identity;
  const known = { issuer, audience, clock: systemClock };
  if (publicKeysUrl !== null) {
    const keys = createRemoteJWKSet(new URL(publicKeysUrl), { timeoutDuration: fetchTimeoutMilliseconds });
    return createAssertionVerifier({ keys, ...known });
  }
  if (signingKeyFile === null) return null;
  const keys = createLocalJWKSet(await readPublicKeys({ signingKeyFile, publishedKeyFiles }));
  return createAssertionVerifier({ keys, ...known });
}
