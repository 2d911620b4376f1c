import type { Config } from '../../config/schema.js';
import type { PublishedKeys } from '../../edge/observe/management.js';
import type { CallerIdentity } from '../../gateway/ports.js';
import { systemClock } from './system-clock.js';

/**
 * Opens the signer of assertions (JWTs that name the merchant to upstreams). Null if the configuration names no key.
 * @throws OperatorError
 */
export async function openIdentity({ identity, keyStore }: Config): Promise<CallerIdentity | null> {
  const { signingKeyFile, publishedKeyFiles, issuer, audience, lifetimeSeconds } = identity;
  if (signingKeyFile === null) return null;
  // Load these modules lazily: they load jose and Web Crypto, which most gateways do not need.
  const { SignedIdentity } = await import('../../adapters/identity/signed-identity.js');
  const { readPublicKeys, readSigningKey } = await import('../../adapters/identity/signing-keys.js');
  return new SignedIdentity({
    signingKey: await readSigningKey(signingKeyFile),
    publicKeys: await readPublicKeys([signingKeyFile, ...publishedKeyFiles]),
    ...{ issuer, audience, lifetimeSeconds, clock: systemClock },
    maxEntries: keyStore.cache.maxEntries,
  });
}

/**
 * Opens the public keys of a gateway that signs no assertions yet, so that upstreams know the first key in advance.
 * Null if the gateway signs assertions, or if the configuration names no key.
 * @throws OperatorError
 */
export async function openPublishedKeys({ identity }: Config): Promise<PublishedKeys | null> {
  const { signingKeyFile, publishedKeyFiles } = identity;
  if (signingKeyFile !== null || publishedKeyFiles.length === 0) return null;
  const { readPublicKeys } = await import('../../adapters/identity/signing-keys.js');
  return { publicKeys: await readPublicKeys(publishedKeyFiles) };
}
