import type { RegistryDatabase } from '../registry-database.js';
import { newId, type RegistryContext } from '../registry-context.js';
import { registryAuthor } from '../events/author.js';
import type { NewEvent } from '../events/repository.js';
import { findAdministrator, noteOwners } from '../administrators/repository.js';
import { rulesIn } from '../approvals/guard.js';
import type { Administrator } from '../administrators/schema.js';
import type { Change, UnpublishedOutcome } from '../change.js';
import { type ClaimRules, nameIn } from './claims.js';
import type { Claims } from './provider.js';
import type { SignInRow } from './sign-in-row.js';

/** The account of a person who may sign in. `events` are the events to store if this sign-in created or changed it. */
interface Found {
  readonly administrator: Administrator;
  readonly events: readonly NewEvent[];
}

type Refreshed = Pick<SignInRow, 'administrator_id' | 'has_claimed_roles'>;

/** The outcome of a sign-in that is refused, with the reason (`cause`). */
type Refused = UnpublishedOutcome<{ readonly cause: string }>;

/** Either the administrator account of a verified person, or the outcome if the person is not allowed to sign in. */
export type Account = Found | Refused;

/**
 * Finds the administrator with the person's `iss` and `sub`, and stores the roles that result from the claims. Creates
 * an administrator for an unknown person whose claims give a role. If the claims give no access any more when a sign-in
 * is refreshed, removes all roles, even those of the last owner. Without `registry.oidc.roles`, the stored roles apply,
 * and an unknown person is not allowed to sign in.
 *
 * @param refreshed the sign-in that is refreshed; null for a new one
 */
export async function accountOf(
  change: Omit<Change, 'revision'>,
  random: RegistryContext['random'],
  claims: Claims,
  rules: ClaimRules,
  refreshed: Refreshed | null,
): Promise<Account> {
  const { transaction, now } = change;
  const known = await transaction
    .selectFrom('administrators')
    .select('id')
    .where('issuer', '=', claims.iss)
    .where('subject', '=', claims.sub)
    .executeTakeFirst();
  if (refreshed !== null && known?.id !== refreshed.administrator_id) return refused('other-subject');
  const before = known === undefined ? null : await findAdministrator(transaction, known.id);
  if (before !== null && before.status !== 'ACTIVE') return refused('disabled');
  if (!rules.decide) return before === null ? refused('unknown-person') : { administrator: before, events: [] };
  const grant = rules.grantOf(claims);
  if ('cause' in grant) return withoutAccess(change, before, grant.cause, refreshed);
  const becomesOwner = grant.roles.includes('owner') && before?.roles.includes('owner') !== true;
  if (becomesOwner && (await rulesIn(transaction)).owners) return refused('owner-needs-approval');
  // Rejects claims that name another merchant than the stored one. Otherwise the administrator's existing tokens would
  // give access to the new merchant.
  if (before !== null && grant.merchantId !== before.merchantId) {
    return withoutAccess(change, before, 'other-merchant', refreshed);
  }
  if (before !== null) return changed(transaction, before, grant.roles, now);
  if (grant.merchantId !== null && !(await hasMerchant(transaction, grant.merchantId))) {
    return refused('unknown-merchant');
  }
  const id = newId('adm', now, random);
  await transaction
    .insertInto('administrators')
    .values({
      ...{ id, name: await unusedName(transaction, nameIn(claims), id), kind: 'person', status: 'ACTIVE' },
      ...{ roles: JSON.stringify(grant.roles), merchant_id: grant.merchantId, issuer: claims.iss, subject: claims.sub },
      ...{ created_at: now, updated_at: now, version: 1 },
    })
    .execute();
  await noteOwners(transaction);
  const after = await findAdministrator(transaction, id);
  const event = { action: 'administrator.created', merchantId: grant.merchantId ?? '', keyId: null } as const;
  return { administrator: after, events: [{ ...event, before: null, after }] };
}

function refused(cause: string): Refused {
  return { result: { cause }, events: [] };
}

/**
 * Refuses a person whose claims give no access. If the refreshed sign-in got its roles from claims, also removes the
 * roles of the account, because its other tokens and sessions would keep them. Otherwise the roles stay, because an
 * owner may have given them by hand.
 */
async function withoutAccess(
  { transaction, now }: Omit<Change, 'revision'>,
  before: Administrator | null,
  cause: string,
  refreshed: Refreshed | null,
): Promise<Refused> {
  if (before === null || refreshed?.has_claimed_roles !== 1) return refused(cause);
  const { events } = await changed(transaction, before, [], now);
  return { result: { cause }, events, provenAuthor: registryAuthor };
}

async function changed(
  transaction: RegistryDatabase,
  before: Administrator,
  roles: readonly string[],
  now: number,
): Promise<Found> {
  const isSame = roles.toSorted().join() === before.roles.toSorted().join();
  if (isSame) return { administrator: before, events: [] };
  await transaction
    .updateTable('administrators')
    .set((it) => ({ roles: JSON.stringify(roles), updated_at: now, version: it('version', '+', 1) }))
    .where('id', '=', before.id)
    .execute();
  await noteOwners(transaction);
  const after = await findAdministrator(transaction, before.id);
  const event = { action: 'administrator.changed', merchantId: before.merchantId ?? '', keyId: null } as const;
  return { administrator: after, events: [{ ...event, before, after }] };
}

async function hasMerchant(transaction: RegistryDatabase, id: string): Promise<boolean> {
  const merchant = transaction.selectFrom('merchants').select('id').where('id', '=', id);
  return (await merchant.executeTakeFirst()) !== undefined;
}

const reserved = new Set(['bootstrap', 'registry', 'unknown', 'admin']);

async function unusedName(transaction: RegistryDatabase, wanted: string, id: string): Promise<string> {
  const named = transaction.selectFrom('administrators').select('id').where('name', '=', wanted);
  const isUsed = reserved.has(wanted.toLowerCase()) || (await named.executeTakeFirst()) !== undefined;
  // If the name is in use or reserved, appends the random end of the new id, so that the name is unique.
  return isUsed ? `${wanted.slice(0, 47)}-${id.slice(-16).toLowerCase()}` : wanted;
}
