import type { Tenant } from '../identity.js';
import { ownedBy, ownerColumns } from '../owned-by.js';
import type { ServicesDatabase } from '../services-database.js';

/** An answer, as it goes out. */
export interface Answer {
  readonly status: number;
  readonly body: object;
}

/** An answer and the request that it belongs to. */
export interface KeptAnswer extends Answer {
  readonly fingerprint: string;
}

const keptMilliseconds = 24 * 60 * 60 * 1000;
const batch = 1000;

/** The answer that was given under a key in the last 24 hours. */
export async function findAnswer(
  database: ServicesDatabase,
  tenant: Tenant,
  key: string,
  now: number,
): Promise<KeptAnswer | null> {
  const row = await database
    .selectFrom('answers')
    .select(['fingerprint', 'status', 'body'])
    .where(ownedBy(tenant))
    .where('key', '=', key)
    .where('created_at', '>', now - keptMilliseconds)
    .executeTakeFirst();
  return row === undefined ? null : { ...row, body: JSON.parse(row.body) as object };
}

/**
 * Keeps an answer, in place of one that is too old; belongs in the database transaction of what it tells.
 * @throws Error where one that is not too old is kept under the key: then nothing of the transaction may stay
 */
export async function keepAnswer(
  database: ServicesDatabase,
  tenant: Tenant,
  key: string,
  { fingerprint, status, body }: KeptAnswer,
  now: number,
): Promise<void> {
  const columns = { fingerprint, status, body: JSON.stringify(body), created_at: now };
  const { numInsertedOrUpdatedRows } = await database
    .insertInto('answers')
    .values({ ...ownerColumns(tenant), key, ...columns })
    .onConflict((conflict) =>
      conflict
        .columns(['merchant_id', 'environment', 'key'])
        .doUpdateSet(columns)
        .where('answers.created_at', '<=', now - keptMilliseconds),
    )
    .executeTakeFirst();
  if (numInsertedOrUpdatedRows !== 1n) throw new Error('two requests were carried out at once under one key');
}

/** Forgets answers that are too old, some at a time; true where there may be more. */
export async function forgetOldAnswers(database: ServicesDatabase, now: number): Promise<boolean> {
  const old = database
    .selectFrom('answers')
    .select(['merchant_id', 'environment', 'key'])
    .where('created_at', '<=', now - keptMilliseconds)
    .orderBy('created_at')
    .limit(batch);
  const { numDeletedRows } = await database
    .deleteFrom('answers')
    .where((it) =>
      it(it.refTuple('merchant_id', 'environment', 'key'), 'in', old.$asTuple('merchant_id', 'environment', 'key')),
    )
    .where('created_at', '<=', now - keptMilliseconds)
    .executeTakeFirst();
  return numDeletedRows >= BigInt(batch);
}
