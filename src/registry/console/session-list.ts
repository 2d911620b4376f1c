import type { Selectable } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import type { Caller } from '../administrators/caller.js';
import { findAdministrator } from '../administrators/repository.js';
import { requireRightOverOthers } from '../administrators/refused-right.js';
import { makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import type { ConsoleSession } from './schema.js';
import { hasDisabledIssuer, idleMilliseconds } from './sessions.js';

type Context = Pick<RegistryContext, 'database' | 'clock' | 'reasonFor'>;
type Row = Selectable<RegistryTables['console_sessions']> & { readonly name: string };

/** Returns one page of the open sessions of the caller, or of another administrator, newest first. @throws Refusal */
export async function listSessions(
  context: Context,
  authorOf: () => Author,
  caller: Caller,
  administratorId: string | undefined,
  paging: Paging,
): Promise<Page<ConsoleSession>> {
  const owner = administratorId ?? caller.administratorId;
  if (owner === null || owner !== caller.administratorId)
    requireRightOverOthers(context, caller, authorOf, Refusal.notFound('Administrator'), 'administrators:read');
  let wanted = openSessions(context.database, context.clock.now());
  // The shared token has no sessions of its own. It acts as an owner, so it sees the sessions of all administrators.
  if (owner !== null) wanted = wanted.where('session.administrator_id', '=', owner);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const { offset, limit } = rangeOf(paging);
  const rows = await wanted
    .selectAll('session')
    .select('owner.name')
    .orderBy('session.created_at', 'desc')
    .orderBy('session.id', 'desc')
    .offset(offset)
    .limit(limit)
    .execute();
  return { items: rows.map((row) => toSession(row, caller)), totalRecords: total };
}

/** Ends a session of the caller, or any session if the caller is allowed to change administrators. @throws Refusal */
export function endSession(context: Context, author: Author, caller: Caller, id: string): Promise<ConsoleSession> {
  return makeUnpublishedChange(context, author, async ({ transaction, now }) => {
    const row = await openSessions(transaction, now)
      .selectAll('session')
      .select('owner.name')
      .where('session.id', '=', id)
      .executeTakeFirst();
    if (row === undefined) throw Refusal.notFound('Session');
    const isOwn = row.administrator_id === caller.administratorId;
    if (!isOwn) requireRightOverOthers(context, caller, () => author, Refusal.notFound('Session'));
    await transaction.updateTable('console_sessions').set({ ended_at: now }).where('id', '=', id).execute();
    const { merchantId } = await findAdministrator(transaction, row.administrator_id);
    const event = { action: 'sign-in.ended', merchantId: merchantId ?? '', keyId: null, before: null } as const;
    const after = { sessionId: id, administratorId: row.administrator_id, cause: isOwn ? 'signed-out' : 'by-other' };
    return { result: toSession(row, caller), events: [{ ...event, after }] };
  });
}

function openSessions(database: RegistryDatabase, now: number) {
  return database
    .selectFrom('console_sessions as session')
    .innerJoin('administrators as owner', 'owner.id', 'session.administrator_id')
    .leftJoin('administrator_tokens as token', 'token.id', 'session.token_id')
    .leftJoin('sign_ins as sign_in', 'sign_in.id', 'session.sign_in_id')
    .where('session.ended_at', 'is', null)
    .where('session.expires_at', '>', now)
    .where('session.last_seen_at', '>', now - idleMilliseconds)
    .where('token.revoked_at', 'is', null)
    .where((it) => it.or([it('sign_in.status', 'is', null), it('sign_in.status', '!=', 'ENDED')]))
    .where('owner.status', '=', 'ACTIVE')
    .where((it) => it.not(hasDisabledIssuer));
}

function toSession(row: Row, caller: Caller): ConsoleSession {
  const at = (moment: number): string => new Date(moment).toISOString();
  return {
    ...{ id: row.id, administratorId: row.administrator_id, name: row.name },
    ...{ createdAt: at(row.created_at), lastSeenAt: at(row.last_seen_at), expiresAt: at(row.expires_at) },
    ...{ provenAt: row.proven_at === null ? null : at(row.proven_at), provenBy: row.proven_by },
    ...{ source: row.source, browser: row.browser, isCurrent: row.id === caller.session?.id },
  };
}
