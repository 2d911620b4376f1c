import { sql, type RawBuilder, type SqlBool } from '../database/kysely.js';
import type { Tenant } from './identity.js';

/** The condition that stands in every query: only this merchant's records, of this environment. */
export function ownedBy({ merchantId, environment }: Tenant): RawBuilder<SqlBool> {
  return sql<SqlBool>`(merchant_id = ${merchantId} and environment = ${environment})`;
}

/** The columns of a new record that say whose it is. */
export function ownerColumns({ merchantId, environment }: Tenant) {
  return { merchant_id: merchantId, environment };
}
