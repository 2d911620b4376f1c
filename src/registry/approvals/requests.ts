import type { FastifyRequest } from 'fastify';
import type { Selectable } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import { type Change, makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import { objectIn } from '../fields.js';
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
 * Makes a change. If the approval rules require another administrator to approve the change, stores a request for
 * approval instead. The change is then made after the approval, from the stored input.
 * @param input the body of the HTTP request
 * @param act makes the change in a transaction, and calls the guard in the same transaction. The guard checks the
 *   approval rules.
 * @throws Refusal 409 `approval_required` if the change now waits for approval; 403 if the change needs approval and
 *   the caller uses the shared token, which identifies no person
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
    const { id, expiresAt } = await fileRequest(context, requesterOf(request), error.proposal, input);
    throw new Refusal(
      409,
      `Not changed yet: another administrator must approve the change before ${expiresAt}, with "merchant-gateway approvals approve ${id}"`,
      [],
      'approval_required',
      { approvalId: id, expiresAt },
    );
  }
}

/** Who makes a request for approval, and with which credential. */
export interface Requester {
  readonly author: Author;
  /** The ids of the other administrators who could know the credential (`Caller.issuers`). */
  readonly issuers: readonly string[];
  /** The token whose revocation makes the request invalid; null if the credential depends on no such token. */
  readonly tokenId: string | null;
}

/** Returns who makes a request for approval with an HTTP request. */
export function requesterOf(request: FastifyRequest): Requester {
  const { issuers, proof, tokenId, session } = callerOf(request);
  // A request becomes invalid when its token is revoked, because the token may be stolen. The token of a command-line
  // sign-in is omitted: each refresh or sign-out revokes it, which is no sign of theft.
  const ownTokenId = proof.startsWith('token:') ? tokenId : null;
  return { author: authorOf(request), issuers, tokenId: session === null ? ownTokenId : session.tokenId };
}

/**
 * Stores a request for approval, with its event. If an equal request of this administrator waits already, returns that
 * request instead. Requests differ if the issuers of their credentials differ, because issuers must not approve.
 * Requests also differ if their tokens differ, because each request becomes invalid when its own token is revoked.
 * @throws Refusal 409 if too many requests of this administrator wait
 */
export function fileRequest(
  context: Context,
  { author, issuers, tokenId }: Requester,
  proposal: Proposal,
  input: object,
): Promise<Approval> {
  const { change, merchantId, subject, before, after } = proposal;
  return makeUnpublishedChange(context, author, async ({ transaction, now }) => {
    const waiting = await waitingOf(transaction, author.administratorId, now);
    const shown = { input: JSON.stringify(input), before: before && JSON.stringify(before) };
    const requester_issuers = issuers.length === 0 ? null : JSON.stringify(issuers);
    const same = waiting.find(
      (one) =>
        one.change === change &&
        one.subject === subject &&
        one.input === shown.input &&
        one.before === shown.before &&
        one.after === JSON.stringify(after) &&
        one.requester_issuers === requester_issuers &&
        one.token_id === tokenId,
    );
    if (same !== undefined) return { result: toApproval(same, now), events: [] };
    if (waiting.length >= mostWaiting) {
      throw new Refusal(
        409,
        `${mostWaiting} of your requests wait for approval, which is the maximum: withdraw those that you no longer need`,
      );
    }
    const row = await transaction
      .insertInto('approvals')
      .values({
        ...{ id: newId('apr', now, context.random), change, merchant_id: merchantId, subject, ...shown },
        ...{ after: JSON.stringify(after), requested_by: author.administratorId, requester: author.actor },
        ...{ requester_issuers, token_id: tokenId, reason: author.reason, requested_at: now },
        ...{ expires_at: now + lifetimeMilliseconds, status: 'WAITING' },
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    const result = toApproval(row, now);
    return { result, events: [eventOf('approval.requested', result)] };
  });
}

/**
 * Returns the requests of one administrator that wait for approval and have not expired.
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

/** Counts all requests, of any administrator, that wait for approval and have not expired. */
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
 * Stores the decision about a waiting request. Call this in a transaction. To approve a request, call this in the
 * transaction that makes the requested change.
 * @throws Refusal 409 if the request was decided or has expired
 */
export async function decide(
  { transaction, now }: Pick<Change, 'transaction' | 'now'>,
  id: string,
  decision: Pick<ApprovalRow, 'decided_by' | 'decider' | 'decision'> & {
    readonly status: 'APPROVED' | 'REJECTED' | 'REFUSED';
    /** The id of the record that the approved change creates; omitted if it creates no record. */
    readonly subject?: string;
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

/** Converts a row to the form in which the admin API shows a request for approval. */
export function toApproval(row: ApprovalRow, now: number): Approval {
  const isExpired = row.status === 'WAITING' && row.expires_at <= now;
  const at = (moment: number): string => new Date(moment).toISOString();
  return {
    ...{ id: row.id, change: row.change, merchantId: row.merchant_id, subject: row.subject },
    ...{ before: objectIn(row.before), after: objectIn(row.after) },
    ...{ needs: permissionFor[row.change as GuardedChange], status: isExpired ? 'EXPIRED' : row.status },
    ...{ requestedBy: row.requested_by, requester: row.requester, reason: row.reason },
    ...{ requestedAt: at(row.requested_at), expiresAt: at(row.expires_at) },
    ...{ decidedBy: row.decided_by, decider: row.decider },
    ...{ decidedAt: row.decided_at === null ? null : at(row.decided_at), decision: row.decision },
  };
}
