import { addMilliseconds, type SqlTime } from '../../database/dialects.js';
import type { Tenant } from '../assertion-verifier.js';
import { ownedBy, ownerColumns, type ServicesDatabase } from '../services-database.js';

/**
 * The status code and JSON body of a response, as sent to the client. There is one exception: the stored body for an
 * operator's rejected movement contains only the failure code.
 */
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
 * Finds the response stored under an idempotency key, regardless of its age; null if there is none. So a repeated
 * request can run again only after its stored response was purged.
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

/**
 * Replaces the stored response whose body begins with `bodyStart`, for example because the response contains personal
 * data that must be deleted. The idempotency key and the fingerprint stay, so a repeated request still has no effect.
 * The search reads all stored responses of the merchant and environment.
 * @param bodyStart the beginning of the body as JSON text, without `%`, `_` and backslashes
 */
export async function replaceStoredResponse(
  database: ServicesDatabase,
  tenant: Tenant,
  bodyStart: string,
  { status, body }: ResponseToStore,
): Promise<void> {
  await database
    .updateTable('answers')
    .set({ status, body: JSON.stringify(body) })
    .where(ownedBy(tenant))
    .where('body', 'like', `${bodyStart}%`)
    .execute();
}

/** Purges up to 1000 responses stored at `until` or before; returns true if more could remain. */
export async function purgeStoredResponses(database: ServicesDatabase, until: SqlTime): Promise<boolean> {
  const old = oldestKeys(database, until);
  const { numDeletedRows } = await database
    .deleteFrom('answers')
    .where((it) =>
      it(it.refTuple('merchant_id', 'environment', 'key'), 'in', old.$asTuple('merchant_id', 'environment', 'key')),
    )
    .where('created_at', '<=', until)
    .executeTakeFirst();
  return numDeletedRows >= BigInt(batch);
}

/**
 * Sets the creation time to `now` for up to 1000 responses that were stored before `now`, so that they are purged
 * later. Returns true if more of them remain. One statement for the whole table could exceed its timeout, and would
 * block SQLite.
 */
export async function renewStoredResponses(database: ServicesDatabase, now: SqlTime): Promise<boolean> {
  const until = addMilliseconds(now, -1);
  const old = oldestKeys(database, until);
  await database
    .updateTable('answers')
    .set({ created_at: now })
    .where((it) =>
      it(it.refTuple('merchant_id', 'environment', 'key'), 'in', old.$asTuple('merchant_id', 'environment', 'key')),
    )
    .where('created_at', '<=', until)
    .execute();
  // Another process can have renewed the same batch, so the number of updated rows does not show whether some remain.
  return (await oldestKeys(database, until).limit(1).executeTakeFirst()) !== undefined;
}

function oldestKeys(database: ServicesDatabase, until: SqlTime) {
  return database
    .selectFrom('answers')
    .select(['merchant_id', 'environment', 'key'])
    .where('created_at', '<=', until)
    .orderBy('created_at')
    .limit(batch);
}
