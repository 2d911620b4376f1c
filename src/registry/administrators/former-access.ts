import { sql, type SqlBool } from '../../database/kysely.js';
import type { RegistryDatabase } from '../registry-database.js';

/**
 * Ends the sign-ins and sessions of an administrator, the unused links to the console, and the sessions and links that
 * the administrator issued to others. Call this when a disabled administrator becomes active. Otherwise a stolen
 * session, which could be the reason for the disabling, would be valid again. Does not revoke tokens, except those of
 * sign-ins.
 */
export async function endFormerAccess(transaction: RegistryDatabase, id: string, now: number): Promise<void> {
  const isOwnOrIssued = sql<SqlBool>`(
    administrator_id = ${id} or issued_by = ${id} or issuers like ${`%"${id}"%`}
  )`;
  const sessions = transaction.updateTable('console_sessions').set({ ended_at: now }).where('ended_at', 'is', null);
  await sessions.where(isOwnOrIssued).execute();
  const links = transaction.updateTable('console_links').set({ expires_at: now }).where('used_at', 'is', null);
  await links.where('expires_at', '>', now).where(isOwnOrIssued).execute();
  const signIns = transaction.updateTable('sign_ins').set({ status: 'ENDED', sealed: null });
  await signIns.where('administrator_id', '=', id).execute();
  const tokens = transaction.updateTable('administrator_tokens').set({ revoked_at: now }).where('kind', '=', 'session');
  await tokens.where('administrator_id', '=', id).where('revoked_at', 'is', null).execute();
}
