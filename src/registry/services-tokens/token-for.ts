import { walletPermissions } from '../../rest/services-token.js';
import { isProvenRecently } from '../administrators/access.js';
import type { Caller } from '../administrators/caller.js';
import { permits } from '../administrators/roles.js';
import { approvedFunding } from '../approvals/funding.js';
import { rulesIn } from '../approvals/guard.js';
import { newId, type RegistryContext } from '../registry-context.js';
import type { ServicesTokenKey } from './services-tokens.js';

/** Dependencies of `servicesTokenFor`. */
export interface ServicesTokenSigner {
  readonly key: ServicesTokenKey;
  /** Permissions whose use requires a reason (`x-reason`). */
  readonly reasonFor: ReadonlySet<string>;
}

/** What a services token is for. */
interface TokenUse {
  /** The caller's approved request to fund a wallet; undefined if the caller names no request. */
  readonly approvalId: string | undefined;
  /** The client's address, if the registry itself sends the request to the services; null if unknown. */
  readonly clientAddress?: string | null;
}

/**
 * Signs a services token with the caller's permissions for wallets. If the caller uses a console session without a
 * recent sign-in, leaves out `wallets:fund`.
 * @throws Refusal if the request to fund a wallet was not approved in the last 24 hours, or belongs to another
 * administrator
 */
export async function servicesTokenFor(
  { database, clock, random }: Pick<RegistryContext, 'database' | 'clock' | 'random'>,
  { key, reasonFor }: ServicesTokenSigner,
  caller: Caller,
  { approvalId, clientAddress }: TokenUse,
) {
  // Imports this module only when needed: it loads jose, which a registry without services tokens never uses.
  const { signServicesToken } = await import('./services-tokens.js');
  const now = clock.now();
  const permissions = walletPermissions.filter(
    (permission) =>
      permits(caller.roles, permission) && (permission !== 'wallets:fund' || isProvenRecently(caller, now)),
  );
  const approved = approvalId === undefined ? null : await approvedFunding(database, caller, approvalId, now);
  const { fundingAbove } = await rulesIn(database);
  const signed = await signServicesToken(key, {
    ...{ caller, permissions, now, approved, clientAddress, fundingLimits: fundingAbove },
    reasonFor: permissions.filter((permission) => reasonFor.has(permission)),
    id: newId('jti', now, random),
  });
  return { ...signed, permissions };
}
