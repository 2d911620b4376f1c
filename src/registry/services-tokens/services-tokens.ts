import type { KeyObject } from 'node:crypto';
import { SignJWT } from 'jose';
import { type Funding, type FundingLimits, servicesToken, type WalletPermission } from '../../rest/services-token.js';
import type { Caller } from '../administrators/caller.js';

/** The key with which the registry signs services tokens (JWTs by which the services recognise an administrator). */
export interface ServicesTokenKey {
  /** An Ed25519 key. */
  readonly privateKey: KeyObject;
  /** RFC 7638 thumbprint of the public key (`kid`), by which the services find the key. */
  readonly keyId: string;
}

/** The contents of a services token (JWT for the services) that differ from token to token. */
export interface ServicesTokenClaims {
  readonly caller: Caller;
  readonly permissions: readonly WalletPermission[];
  /** The permissions in `permissions` whose use requires a reason. */
  readonly reasonFor: readonly WalletPermission[];
  /**
   * For each currency, the amount in minor units above which funding needs approval. In a currency that is not listed,
   * each funding needs approval. Null: no funding needs approval.
   */
  readonly fundingLimits: FundingLimits | null;
  /** The one approved funding that the token permits above the limits; null if the caller named no approved request. */
  readonly approved: Funding | null;
  /**
   * If the registry sends the request to the services for a client: the client's address, or null if it is unknown.
   * Undefined if the client sends the request to the services itself: the services then see its address.
   */
  readonly clientAddress: string | null | undefined;
  readonly id: string;
  /** The current time, in milliseconds since 1970. */
  readonly now: number;
}

/**
 * Signs a token by which the services recognise an administrator. The token expires after 5 minutes or together with
 * the caller's own credential, whichever is earlier.
 */
export async function signServicesToken(
  { privateKey, keyId }: ServicesTokenKey,
  { caller, permissions, reasonFor, fundingLimits, approved, clientAddress, id, now }: ServicesTokenClaims,
): Promise<{ readonly token: string; readonly expiresAt: string }> {
  const issuedAt = Math.floor(now / 1000);
  const latest = issuedAt + servicesToken.longestSeconds;
  const expiresAt = caller.expiresAt === null ? latest : Math.min(latest, Math.floor(caller.expiresAt / 1000));
  const token = await new SignJWT({
    ...{ name: caller.name, permissions, reasonFor, proof: caller.proof },
    ...(fundingLimits === null ? {} : { fundingLimits }),
    ...(approved === null ? {} : { approved }),
    ...(caller.sources === null ? {} : { sources: caller.sources }),
    ...(clientAddress === undefined ? {} : { clientAddress }),
  })
    .setProtectedHeader({ alg: servicesToken.algorithm, kid: keyId, typ: servicesToken.type })
    .setIssuer(servicesToken.issuer)
    .setAudience(servicesToken.audience)
    .setSubject(caller.administratorId ?? caller.name)
    .setJti(id)
    .setIssuedAt(issuedAt)
    .setExpirationTime(expiresAt)
    .sign(privateKey);
  return { token, expiresAt: new Date(expiresAt * 1000).toISOString() };
}
