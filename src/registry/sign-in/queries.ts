import { Refusal } from '../../rest/refusal.js';
import type { Caller } from '../administrators/caller.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import { ended, refreshRunning } from './refusals.js';
import type { SignInRow } from './sign-in-row.js';

/** Maximum number of sign-ins from one IP address, or one IPv6 /64, that wait for the person's approval. */
const mostPendingOfSource = 20;
/** Maximum number of sign-ins from all addresses together that wait for the person's approval. */
const mostPending = 1000;
/**
 * While a refresh is in progress, other refreshes of the same sign-in get a 409 for at most this time, in milliseconds.
 * It is longer than the four calls of a refresh, which take up to 5 seconds each: metadata, token, signing keys and
 * UserInfo.
 */
export const refreshMilliseconds = 25_000;
/**
 * After a completed refresh, the replaced handle (the client's secret) causes a 409 for this time, in milliseconds.
 * Later use of the replaced handle ends the sign-in.
 */
const freshMilliseconds = 10_000;

/**
 * Deletes sign-ins and session tokens that expired before a time, in milliseconds since 1970. Keeps a token that a
 * sign-in still refers to: a sign-in lasts for hours, its tokens only for minutes.
 */
export async function deleteEnded(database: RegistryDatabase, before: number): Promise<void> {
  await database.deleteFrom('sign_ins').where('expires_at', '<', before).execute();
  await database
    .deleteFrom('administrator_tokens')
    .where('kind', '=', 'session')
    .where('expires_at', '<', before)
    .where((it) =>
      it.not(it.exists(it.selectFrom('sign_ins').select('id').whereRef('token_id', '=', 'administrator_tokens.id'))),
    )
    .execute();
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

/**
 * Whether a sign-in got its current session token within the last ten seconds (`freshMilliseconds`). The token's time
 * may be up to ten seconds in the future, because the clocks of replicas differ. A token with a later time does not
 * count: the clock was set back.
 */
export async function isFresh(
  { database, clock }: Pick<RegistryContext, 'database' | 'clock'>,
  { token_id }: SignInRow,
): Promise<boolean> {
  const token = database.selectFrom('administrator_tokens').select('created_at').where('id', '=', token_id);
  return Math.abs(clock.now() - ((await token.executeTakeFirst())?.created_at ?? 0)) < freshMilliseconds;
}

/**
 * Returns the sign-in that issued the caller's token, or that created the link with which the caller's console session
 * began; null if the caller has another credential.
 * @throws Refusal 401 if the token was replaced or revoked while the request was in progress
 */
export async function signInOf(
  transaction: RegistryDatabase,
  { proof, tokenId, session }: Pick<Caller, 'proof' | 'tokenId' | 'session'>,
): Promise<Pick<SignInRow, 'id' | 'expires_at'> | null> {
  const signInId = session?.signInId ?? null;
  if (signInId === null && (tokenId === null || proof.startsWith('token:'))) return null;
  const active = transaction.selectFrom('sign_ins').select(['id', 'expires_at']).where('status', '=', 'ACTIVE');
  const own = signInId === null ? active.where('token_id', '=', tokenId) : active.where('id', '=', signInId);
  const row = await own.executeTakeFirst();
  if (row === undefined) throw new Refusal(401, 'Invalid token');
  return row;
}

/**
 * Ends a sign-in and revokes its current session token. Call this in the transaction of a change. The transaction locks
 * the revision, so no refresh can replace the token meanwhile.
 * @returns the sign-in before its end; null if it had already ended
 */
export async function endSignIn(transaction: RegistryDatabase, id: string, now: number): Promise<SignInRow | null> {
  const active = transaction.selectFrom('sign_ins').selectAll().where('id', '=', id).where('status', '<>', 'ENDED');
  const row = await active.executeTakeFirst();
  if (row === undefined) return null;
  await transaction.updateTable('sign_ins').set({ status: 'ENDED', sealed: null }).where('id', '=', id).execute();
  if (row.token_id !== null) await revokeSession(transaction, row.token_id, now);
  return row;
}

/** Returns the refusal of a request whose sign-in another request has changed: 409 after a refresh, otherwise 401. */
export async function lateRefusal(transaction: RegistryDatabase, { id, status }: SignInRow): Promise<Refusal> {
  const active = transaction.selectFrom('sign_ins').select('id').where('status', '=', 'ACTIVE').where('id', '=', id);
  const isRefreshed = status === 'ACTIVE' && (await active.executeTakeFirst()) !== undefined;
  return isRefreshed ? refreshRunning() : ended();
}

/** Revokes a session token. */
export async function revokeSession(transaction: RegistryDatabase, id: string, now: number): Promise<void> {
  const valid = transaction.updateTable('administrator_tokens').set({ revoked_at: now }).where('id', '=', id);
  await valid.where('revoked_at', 'is', null).execute();
}

/**
 * Rejects a new sign-in if too many sign-ins already wait for the person's approval.
 * @param source the client's source, as `countedSource` returns it
 * @throws Refusal 429
 */
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
