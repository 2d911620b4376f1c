import { Refusal } from '../../rest/refusal.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { SignInRow } from './sign-in-row.js';

/** Maximum number of sign-ins from one IP address that wait for the person's approval. */
const mostPendingOfSource = 20;
/** Maximum number of sign-ins from all addresses together that wait for the person's approval. */
const mostPending = 1000;
/** How long after the start of a refresh another refresh of the same sign-in gets a 409, in milliseconds. */
export const refreshMilliseconds = 10_000;

/** Deletes sign-ins and session tokens that expired before a time, in milliseconds since 1970. */
export async function deleteEnded(database: RegistryDatabase, before: number): Promise<void> {
  await database.deleteFrom('sign_ins').where('expires_at', '<', before).execute();
  const sessions = database.deleteFrom('administrator_tokens').where('kind', '=', 'session');
  await sessions.where('expires_at', '<', before).execute();
}

/**
 * Claims the right to call the provider for a sign-in, so that only one request at a time calls it.
 * @returns false if another request has claimed this right within the last `forMilliseconds`, or claims it concurrently
 */
export async function claimTurn(
  database: RegistryDatabase,
  row: SignInRow,
  forMilliseconds: number,
  now: number,
): Promise<boolean> {
  if (row.polled_at !== 0 && now >= row.polled_at && now - row.polled_at < forMilliseconds) return false;
  const { numUpdatedRows } = await database
    .updateTable('sign_ins')
    .set({ polled_at: now })
    .where('id', '=', row.id)
    .where('digest', '=', row.digest)
    .where('polled_at', '=', row.polled_at)
    .executeTakeFirstOrThrow();
  return Number(numUpdatedRows) === 1;
}

/** Whether a sign-in got its current session token within the last ten seconds (`refreshMilliseconds`). */
export async function isFresh(
  { database, clock }: Pick<RegistryContext, 'database' | 'clock'>,
  { token_id }: SignInRow,
): Promise<boolean> {
  const token = database.selectFrom('administrator_tokens').select('created_at').where('id', '=', token_id);
  return clock.now() - ((await token.executeTakeFirst())?.created_at ?? 0) < refreshMilliseconds;
}

/** Revokes a session token. */
export async function revokeSession(transaction: RegistryDatabase, id: string, now: number): Promise<void> {
  const valid = transaction.updateTable('administrator_tokens').set({ revoked_at: now }).where('id', '=', id);
  await valid.where('revoked_at', 'is', null).execute();
}

/** Rejects a new sign-in if too many sign-ins already wait for the person's approval. @throws Refusal 429 */
export async function requireRoom(database: RegistryDatabase, source: string, now: number): Promise<void> {
  const { total, own } = await database
    .selectFrom('sign_ins')
    .select((it) => [
      it.fn.countAll<number>().as('total'),
      it.fn.countAll<number>().filterWhere('source', '=', source).as('own'),
    ])
    .where('status', '=', 'PENDING')
    .where('expires_at', '>', now)
    .executeTakeFirstOrThrow();
  if (own < mostPendingOfSource && total < mostPending) return;
  throw new Refusal(429, 'Too many sign-ins are pending: try again later', [], 'too_many_attempts');
}
