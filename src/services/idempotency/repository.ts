import type { SqlTime } from '../../database/dialects.js';
import type { Tenant } from '../assertion-verifier.js';
import { ownedBy, ownerColumns, type ServicesDatabase } from '../services-database.js';

/** A response as sent to the client: status code and JSON body. */
export interface ResponseToStore {
  readonly status: number;
  readonly body: object;
}

/** A stored response and the fingerprint of its request. */
export interface StoredResponse extends ResponseToStore {
  readonly fingerprint: string;
}

const batch = 1000;

/**
 * Finds the response stored under an idempotency key, regardless of its age. So a repeated request can run again only
 * after its stored response was purged.
 */
export async function findStoredResponse(
  database: ServicesDatabase,
  tenant: Tenant,
  key: string,
): Promise<StoredResponse | null> {
  const row = await database
    .selectFrom('answers')
    .select(['fingerprint', 'status', 'body'])
    .where(ownedBy(tenant))
    .where('key', '=', key)
    .executeTakeFirst();
  return row === undefined ? null : { ...row, body: JSON.parse(row.body) as object };
}

/**
 * Stores a response. Call this in the database transaction that makes the request's changes.
 * @throws Error if the key already has a response; the whole transaction must then roll back
 */
export async function storeResponse(
  database: ServicesDatabase,
  tenant: Tenant,
  key: string,
  { fingerprint, status, body }: StoredResponse,
  now: SqlTime,
): Promise<void> {
  await database
    .insertInto('answers')
    .values({ ...ownerColumns(tenant), key, fingerprint, status, body: JSON.stringify(body), created_at: now })
    .execute();
}

/** Purges up to 1000 responses stored at `until` or before; returns true if more could remain. */
export async function purgeStoredResponses(database: ServicesDatabase, until: SqlTime): Promise<boolean> {
  const old = database
    .selectFrom('answers')
    .select(['merchant_id', 'environment', 'key'])
    .where('created_at', '<=', until)
    .orderBy('created_at')
    .limit(batch);
  const { numDeletedRows } = await database
    .deleteFrom('answers')
    .where((it) =>
      it(it.refTuple('merchant_id', 'environment', 'key'), 'in', old.$asTuple('merchant_id', 'environment', 'key')),
    )
    .where('created_at', '<=', until)
    .executeTakeFirst();
  return numDeletedRows >= BigInt(batch);
}
