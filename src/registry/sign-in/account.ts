import type { RegistryDatabase } from '../registry-database.js';
import { newId, type RegistryContext } from '../registry-context.js';
import type { NewEvent } from '../events/repository.js';
import { findAdministrator, noteOwners } from '../administrators/repository.js';
import { rulesIn } from '../approvals/guard.js';
import type { Administrator } from '../administrators/schema.js';
import type { Change } from '../change.js';
import { type ClaimRules, type Grant, nameIn } from './claims.js';
import type { Claims } from './provider.js';

/**
 * The administrator of a verified person, with the events of their creation or change; or the reason why the person is
 * not allowed to sign in.
 */
export type Account =
  { readonly administrator: Administrator; readonly events: readonly NewEvent[] } | { readonly cause: string };

/**
 * Finds the administrator with the person's `iss` and `sub`, and stores the roles that result from the claims. Creates
 * an administrator for an unknown person whose claims give a role. Without `registry.oidc.roles`, the stored roles
 * apply, and an unknown person is not allowed to sign in.
 *
 * @param expected the administrator's id if a sign-in is refreshed; null for a new sign-in
 */
export async function accountOf(
  { transaction, now }: Omit<Change, 'revision'>,
  random: RegistryContext['random'],
  claims: Claims,
  rules: ClaimRules,
  expected: string | null,
): Promise<Account> {
  const known = await transaction
    .selectFrom('administrators')
    .select('id')
    .where('issuer', '=', claims.iss)
    .where('subject', '=', claims.sub)
    .executeTakeFirst();
  if (expected !== null && known?.id !== expected) return { cause: 'other-subject' };
  const before = known === undefined ? null : await findAdministrator(transaction, known.id);
  if (before !== null && before.status !== 'ACTIVE') return { cause: 'disabled' };
  if (!rules.decide) return before === null ? { cause: 'unknown-person' } : { administrator: before, events: [] };
  const grant = rules.grantOf(claims);
  if ('cause' in grant) return grant;
  const becomesOwner = grant.roles.includes('owner') && before?.roles.includes('owner') !== true;
  if (becomesOwner && (await rulesIn(transaction)).owners) return { cause: 'owner-needs-approval' };
  if (before !== null) return changed(transaction, before, grant, now);
  if (grant.merchantId !== null && !(await hasMerchant(transaction, grant.merchantId))) {
    return { cause: 'unknown-merchant' };
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

async function changed(
  transaction: RegistryDatabase,
  before: Administrator,
  grant: Grant,
  now: number,
): Promise<Account> {
  // Rejects claims that name another merchant than the stored one. Otherwise the administrator's existing tokens would
  // give access to the new merchant.
  if (grant.merchantId !== before.merchantId) return { cause: 'other-merchant' };
  const isSame = grant.roles.toSorted().join() === before.roles.toSorted().join();
  if (isSame) return { administrator: before, events: [] };
  await transaction
    .updateTable('administrators')
    .set((it) => ({ roles: JSON.stringify(grant.roles), updated_at: now, version: it('version', '+', 1) }))
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
  // A name that is in use or reserved gets the random end of the new id, so that it is unique.
  return isUsed ? `${wanted.slice(0, 47)}-${id.slice(-16).toLowerCase()}` : wanted;
}
