import { type RawBuilder, sql, type SqlBool } from '../../database/kysely.js';
import { takeLock } from '../../database/dialects.js';
import { Refusal } from '../../rest/refusal.js';
import type { Tenant } from '../assertion-verifier.js';
import { ownedBy, type ServicesDatabase } from '../services-database.js';

/**
 * Returns the SQL condition that a payout has this reference, either as the merchant's or as the services' reference.
 * It compares both: a client that knows one of them and finds no payout would pay again.
 */
export function hasReference(reference: string): RawBuilder<SqlBool> {
  return sql<SqlBool>`(merchant_reference = ${reference} or reference = ${reference})`;
}

/**
 * Reserves a merchant's reference for the payout that this database transaction creates; does nothing without a
 * reference. A concurrent request with the same reference waits for the lock, and then finds the first payout. Call
 * this before any other lock and before the query for the wallet: a taken reference is then reported even if the body
 * has other errors.
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
