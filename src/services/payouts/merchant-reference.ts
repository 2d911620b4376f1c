import { type RawBuilder, sql, type SqlBool } from '../../database/kysely.js';
import { waitForLock } from '../../database/dialects.js';
import { Refusal } from '../../rest/refusal.js';
import type { Tenant } from '../assertion-verifier.js';
import { ownedBy, type ServicesDatabase } from '../services-database.js';

/**
 * The condition that a payout has this reference. The services' own, which every payout has, counts as well: whoever looked for one
 * by it and found nothing would pay again.
 */
export function hasReference(reference: string): RawBuilder<SqlBool> {
  return sql<SqlBool>`(merchant_reference = ${reference} or reference = ${reference})`;
}

/**
 * Keeps a reference for the payout that this database transaction makes: of two at once the second one waits, and then sees the
 * first. Comes before everything else that waits, and before a look at wallets: a reference that is taken is told whatever the body.
 * @throws Refusal with the id of the payout that has it
 */
export async function claimReference(
  transaction: ServicesDatabase,
  tenant: Tenant,
  reference: string | null,
): Promise<void> {
  if (reference === null) return;
  await waitForLock(transaction, JSON.stringify(['payout', tenant.merchantId, tenant.environment, reference]));
  const first = await transaction
    .selectFrom('payouts')
    .select('id')
    .where(ownedBy(tenant))
    .where(hasReference(reference))
    .executeTakeFirst();
  if (first === undefined) return;
  const details = { payoutId: first.id };
  throw new Refusal(409, 'A payout with this reference already exists', [], 'reference_taken', details);
}
