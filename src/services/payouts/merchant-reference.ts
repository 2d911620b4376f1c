import { type RawBuilder, sql, type SqlBool } from '../../database/kysely.js';
import { takeLock } from '../../database/dialects.js';
import { Refusal } from '../../rest/refusal.js';
import type { Tenant } from '../assertion-verifier.js';
import { ownedBy, type ServicesDatabase } from '../services-database.js';

/**
 * Returns the SQL condition that a payout has this reference, either as the merchant's or as the services' reference.
 * A client can search for a payout by either of the two. If the search missed the payout, the client would pay twice.
 */
export function hasReference(reference: string): RawBuilder<SqlBool> {
  return sql<SqlBool>`(merchant_reference = ${reference} or reference = ${reference})`;
}

/**
 * Reserves a merchant's reference for the payout that this database transaction creates. Does nothing if the reference
 * is null. A concurrent request with the same reference waits for the lock, and then finds the first payout.
 * Call this before `lockListForInsert`, so that list queries do not wait for this lock too. Also call it before the
 * query for the wallet, so that a taken reference is reported even if the wallet is unknown.
 * @throws Refusal 409 `reference_taken`, with the id of the existing payout in `payoutId`
 */
export async function reserveReference(
  transaction: ServicesDatabase,
  tenant: Tenant,
  reference: string | null,
): Promise<void> {
  if (reference === null) return;
  await takeLock(transaction, JSON.stringify(['payout', tenant.merchantId, tenant.environment, reference]));
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
