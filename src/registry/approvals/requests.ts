import type { FastifyRequest } from 'fastify';
import type { Selectable } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import { type Change, makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import { newId, type RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import { ApprovalNeeded, byRules, type Guard, type GuardedChange, permissionFor, type Proposal } from './guard.js';
import type { Approval } from './schema.js';

type Context = Pick<RegistryContext, 'database' | 'clock' | 'random'>;

/** A stored request for approval. */
export type ApprovalRow = Selectable<RegistryTables['approvals']>;

const hourMilliseconds = 60 * 60 * 1000;
/** How long a request waits for approval before it expires. Also how long an approved funding stays valid. */
export const lifetimeMilliseconds = 24 * hourMilliseconds;
/** Maximum number of one administrator's requests that wait for approval at the same time. */
const mostWaiting = 100;

/**
 * Makes a change. If the approval rules require another administrator to approve it, stores the change as a request
 * instead.
 * @param input the body of the HTTP request. A request for approval stores it, to make the change after the approval
 * @param act makes the change, and in its transaction calls the guard, which checks the approval rules
 * @throws Refusal 409 `approval_required` if the change now waits for approval; 403 if it needs approval and the caller
 *   uses the shared token, which identifies no person
 */
export async function changeOrRequest<Result>(
  context: Context,
  request: FastifyRequest,
  input: object,
  act: (guard: Guard) => Promise<Result>,
): Promise<Result> {
  try {
    return await act(byRules);
  } catch (error) {
    if (!(error instanceof ApprovalNeeded)) throw error;
    if (callerOf(request).administratorId === null) {
      throw new Refusal(
        403,
        'This change needs the approval of another administrator, but the shared token identifies no person: use a token of your own',
        [],
        'approval_needs_identity',
      );
    }
    const { id, expiresAt } = await fileRequest(context, authorOf(request), error.proposal, input);
    throw new Refusal(
      409,
      `Not changed yet: another administrator must approve the change before ${expiresAt}, with "merchant-gateway approvals approve ${id}"`,
      [],
      'approval_required',
      { approvalId: id, expiresAt },
    );
  }
}

/**
 * Stores a request for approval, with its event. If an equal request of this administrator waits already, returns that
 * request instead.
 * @throws Refusal 409 if too many requests of this administrator wait
 */
export function fileRequest(context: Context, author: Author, proposal: Proposal, input: object): Promise<Approval> {
  const { change, merchantId, subject, before, after } = proposal;
  return makeUnpublishedChange(context, author, async ({ transaction, now }) => {
    const waiting = await waitingOf(transaction, author.administratorId, now);
    const shown = { input: JSON.stringify(input), before: before && JSON.stringify(before) };
    const same = waiting.find(
      (one) =>
        one.change === change &&
        one.subject === subject &&
        one.input === shown.input &&
        one.before === shown.before &&
        one.after === JSON.stringify(after),
    );
    if (same !== undefined) return { result: toApproval(same, now), events: [] };
    if (waiting.length >= mostWaiting) {
      throw new Refusal(
        409,
        `${mostWaiting} of your requests wait for approval: withdraw those that you no longer need`,
      );
    }
    const row = await transaction
      .insertInto('approvals')
      .values({
        ...{ id: newId('apr', now, context.random), change, merchant_id: merchantId, subject, ...shown },
        ...{ after: JSON.stringify(after), requested_by: author.administratorId, requester: author.actor },
        ...{ reason: author.reason, requested_at: now, expires_at: now + lifetimeMilliseconds, status: 'WAITING' },
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    const result = toApproval(row, now);
    return { result, events: [eventOf('approval.requested', result)] };
  });
}

/**
 * Returns the requests that one administrator has made, that wait for approval and have not expired.
 * @param requestedBy the id of the administrator; null for the requests of the registry itself
 */
export function waitingOf(database: RegistryDatabase, requestedBy: string | null, now: number): Promise<ApprovalRow[]> {
  return database
    .selectFrom('approvals')
    .selectAll()
    .where('status', '=', 'WAITING')
    .where('expires_at', '>', now)
    .where('requested_by', requestedBy === null ? 'is' : '=', requestedBy)
    .execute();
}

/** Counts the requests that wait for approval and have not expired, of all administrators. */
export async function countWaiting(database: RegistryDatabase, now: number): Promise<number> {
  const { total } = await database
    .selectFrom('approvals')
    .select((it) => it.fn.countAll<number>().as('total'))
    .where('status', '=', 'WAITING')
    .where('expires_at', '>', now)
    .executeTakeFirstOrThrow();
  return total;
}

/** Returns one page of the requests with a status (undefined: all requests), newest first. */
export async function listApprovals(
  database: RegistryDatabase,
  status: string | undefined,
  now: number,
  paging: Paging,
): Promise<Page<Approval>> {
  const { offset, limit } = rangeOf(paging);
  let wanted = database.selectFrom('approvals');
  if (status !== undefined) {
    wanted = wanted.where('status', '=', status === 'EXPIRED' ? 'WAITING' : (status as ApprovalRow['status']));
  }
  if (status === 'WAITING') wanted = wanted.where('expires_at', '>', now);
  if (status === 'EXPIRED') wanted = wanted.where('expires_at', '<=', now);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const sorted = wanted.selectAll().orderBy('requested_at', 'desc').orderBy('id', 'desc');
  const rows = await sorted.offset(offset).limit(limit).execute();
  return { items: rows.map((row) => toApproval(row, now)), totalRecords: total };
}

/** Finds a request by id. @throws Refusal */
export async function findRow(database: RegistryDatabase, id: string): Promise<ApprovalRow> {
  const row = await database.selectFrom('approvals').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw Refusal.notFound('Approval');
  return row;
}

/**
 * Stores the decision about a waiting request. Call this in a transaction. For an approval, it must be the transaction
 * that makes the requested change.
 * @throws Refusal 409 if the request was decided or has expired
 */
export async function decide(
  { transaction, now }: Pick<Change, 'transaction' | 'now'>,
  id: string,
  decision: Pick<ApprovalRow, 'decided_by' | 'decider' | 'decision'> & {
    readonly status: 'APPROVED' | 'REJECTED' | 'REFUSED';
  },
): Promise<Approval> {
  const before = toApproval(await findRow(transaction, id), now);
  if (before.status !== 'WAITING') throw new NotWaiting(before);
  await transaction
    .updateTable('approvals')
    .set({ ...decision, decided_at: now })
    .where('id', '=', id)
    .execute();
  return toApproval(await findRow(transaction, id), now);
}

/** Thrown for a request that was already decided, or has expired. */
class NotWaiting extends Refusal {
  constructor({ status, decider, decidedAt, expiresAt }: Approval) {
    const when =
      status === 'EXPIRED' ? `it expired at ${expiresAt}` : `${decider ?? ''} decided on it at ${decidedAt ?? ''}`;
    super(409, `The request is ${status}: ${when}`, [], 'approval_not_waiting');
  }
}

/** Returns the event about a request for approval. */
export function eventOf(
  action: 'approval.requested' | 'approval.approved' | 'approval.rejected' | 'approval.refused',
  after: Approval,
) {
  return { action, merchantId: after.merchantId, keyId: null, before: null, after } as const;
}

/** Converts a row to a request of the admin API. */
export function toApproval(row: ApprovalRow, now: number): Approval {
  const isExpired = row.status === 'WAITING' && row.expires_at <= now;
  const at = (moment: number): string => new Date(moment).toISOString();
  return {
    ...{ id: row.id, change: row.change, merchantId: row.merchant_id, subject: row.subject },
    ...{ before: snapshotIn(row.before), after: snapshotIn(row.after) },
    ...{ needs: permissionFor[row.change as GuardedChange], status: isExpired ? 'EXPIRED' : row.status },
    ...{ requestedBy: row.requested_by, requester: row.requester, reason: row.reason },
    ...{ requestedAt: at(row.requested_at), expiresAt: at(row.expires_at) },
    ...{ decidedBy: row.decided_by, decider: row.decider },
    ...{ decidedAt: row.decided_at === null ? null : at(row.decided_at), decision: row.decision },
  };
}

function snapshotIn(text: string | null): Record<string, unknown> | null {
  return text === null ? null : (JSON.parse(text) as Record<string, unknown>);
}
