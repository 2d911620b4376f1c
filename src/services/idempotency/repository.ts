import type { Moment } from '../../database/dialects.js';
import type { Tenant } from '../assertion-verifier.js';
import { ownedBy, ownerColumns, type ServicesDatabase } from '../services-database.js';

/** An answer, as it goes out. */
export interface Answer {
  readonly status: number;
  readonly body: object;
}

/** An answer and the request that it belongs to. */
export interface KeptAnswer extends Answer {
  readonly fingerprint: string;
}

const batch = 1000;

/** The answer that was given under a key, however old: only what has been forgotten may be carried out again. */
export async function findAnswer(database: ServicesDatabase, tenant: Tenant, key: string): Promise<KeptAnswer | null> {
  const row = await database
    .selectFrom('answers')
    .select(['fingerprint', 'status', 'body'])
    .where(ownedBy(tenant))
    .where('key', '=', key)
    .executeTakeFirst();
  return row === undefined ? null : { ...row, body: JSON.parse(row.body) as object };
}

/**
 * Keeps an answer; belongs in the database transaction of what it tells.
 * @throws Error where one is kept under the key: then nothing of the transaction may stay
 */
export async function keepAnswer(
  database: ServicesDatabase,
  tenant: Tenant,
  key: string,
  { fingerprint, status, body }: KeptAnswer,
  now: Moment,
): Promise<void> {
  await database
    .insertInto('answers')
    .values({ ...ownerColumns(tenant), key, fingerprint, status, body: JSON.stringify(body), created_at: now })
    .execute();
}

/** Forgets answers that were given then or before, some at a time; true where there may be more. */
export async function forgetAnswers(database: ServicesDatabase, until: Moment): Promise<boolean> {
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
