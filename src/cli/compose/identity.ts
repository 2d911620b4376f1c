import type { Config } from '../../config/schema.js';
import type { CallerIdentity } from '../../gateway/ports.js';
import { systemClock } from './system-clock.js';

/**
 * Opens what the gateway signs with; null where the configuration names no key.
 * @throws OperatorError
 */
export async function openIdentity({ identity, keyStore }: Config): Promise<CallerIdentity | null> {
  const { signingKeyFile, publishedKeyFiles, issuer, audience, lifetimeSeconds } = identity;
  if (signingKeyFile === null) return null;
  // With jose, and all of Web Crypto, which most gateways have no use for.
  const { SignedIdentity } = await import('../../adapters/identity/signed-identity.js');
  const { readPublicKeys, readSigningKey } = await import('../../adapters/identity/signing-keys.js');
  return new SignedIdentity({
    signingKey: await readSigningKey(signingKeyFile),
    publicKeys: await readPublicKeys({ signingKeyFile, publishedKeyFiles }),
    ...{ issuer, audience, lifetimeSeconds, clock: systemClock },
    maxEntries: keyStore.cache.maxEntries,
  });
}
