import { Refusal } from '../../rest/refusal.js';
import {
  changeAdministrator,
  createAdministrator,
  findAdministrator,
  activeOwners,
} from '../administrators/repository.js';
import type { Caller } from '../administrators/caller.js';
import { RefusedRight, requireReason } from '../administrators/refused-right.js';
import { permits } from '../administrators/roles.js';
import { type Change, makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import { listIn } from '../fields.js';
import { changeMerchant, createMerchant } from '../merchants/repository.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import { type Guard, type GuardedChange, permissionFor } from './guard.js';
import { type ApprovalRow, decide, eventOf, findRow, toApproval } from './requests.js';
import { approveFunding } from './funding.js';
import { changeRules } from './rules.js';
import type { Approval } from './schema.js';

/** An approved request, whose change was made. */
export interface Approved {
  readonly approval: Approval;
  /**
   * The number of the change that gateways have to acknowledge. Null for a change of an administrator, of the approval
   * rules or of a wallet, because gateways need not know such a change.
   */
  readonly revision: number | null;
}

/**
 * Approves a request and makes the requested change, in one transaction. If the change is no longer allowed, for
 * example because the record has changed since the request, the request gets the status REFUSED.
 * @throws Refusal
 */
export async function approve(context: RegistryContext, author: Author, caller: Caller, id: string): Promise<Approved> {
  const row = await findRow(context.database, id);
  await requireIndependent(context.database, caller, row);
  // The approver is the author of the change, so the event of the change contains the approver's reason.
  requireReason(context, author, permissionFor[row.change as GuardedChange]);
  const approved: Approved[] = [];
  const guard: Guard = async (change, proposal) => {
    const subject = proposal.created === undefined ? {} : { subject: proposal.created };
    const approval = await decide(change, id, { ...deciderOf(author), status: 'APPROVED', ...subject });
    await requireValidRequester(change, row);
    const isAsShown =
      (proposal.before && JSON.stringify(proposal.before)) === row.before &&
      JSON.stringify(proposal.after) === row.after;
    if (!isAsShown) throw new Refusal(409, 'the record or setting has changed since the request was made');
    approved.push({ approval, revision: row.change.startsWith('merchant.') ? change.revision : null });
    return [eventOf('approval.approved', approval)];
  };
  try {
    await carryOut(context, author, row, guard);
  } catch (error) {
    if (error instanceof Refusal && error.code !== 'approval_not_waiting') {
      throw await refuse(context, author, id, error.message);
    }
    throw error;
  }
  const [result] = approved;
  if (result === undefined) throw new Error(`${row.change} was made, but its approval was not checked`);
  return result;
}

/** Rejects a request, or withdraws the caller's own request. @throws Refusal */
export async function reject(context: RegistryContext, author: Author, caller: Caller, id: string): Promise<Approval> {
  const row = await findRow(context.database, id);
  const isOwn = caller.administratorId !== null && caller.administratorId === row.requested_by;
  if (!isOwn && !permits(caller.roles, permissionFor[row.change as GuardedChange])) throw new MissingPermission(row);
  return makeUnpublishedChange(context, author, async (change) => {
    const result = await decide(change, id, { ...deciderOf(author), status: 'REJECTED' });
    return { result, events: [eventOf('approval.rejected', result)] };
  });
}

/** Thrown if the caller lacks the permission that the requested change needs. */
class MissingPermission extends RefusedRight {
  constructor({ change }: Pick<ApprovalRow, 'change'>) {
    const permission = permissionFor[change as GuardedChange];
    const message = `Your roles lack the permission ${permission}`;
    super(permission, new Refusal(403, message, [], 'permission_missing', { permission }));
  }
}

/**
 * Thrown if the caller could be the person who made the request. There are four cases:
 * - the caller is the requester;
 * - the requester could know the caller's credential, as one of its issuers;
 * - the caller could know the credential of the request, as one of its issuers;
 * - the caller uses the shared token (`registry.tokenFile`) while there is more than one active owner.
 */
class NotIndependent extends RefusedRight {
  constructor(why: string) {
    const message = `Another administrator has to approve: ${why}`;
    super('another administrator', new Refusal(403, message, [], 'approval_not_independent'));
  }
}

async function requireIndependent(database: RegistryDatabase, caller: Caller, row: ApprovalRow): Promise<void> {
  const { administratorId, issuers, roles } = caller;
  if (administratorId === null) {
    // With fewer than two active owners, the shared token is allowed to approve. An owner cannot approve their own
    // request, so without the shared token, a single owner could never change the rules, for example.
    if ((await activeOwners(database)).length > 1) {
      throw new NotIndependent(
        'the shared token identifies no person, so it cannot approve while there is more than one owner',
      );
    }
  } else if (administratorId === row.requested_by) {
    throw new NotIndependent('you made this request');
  } else if (row.requested_by !== null && issuers.includes(row.requested_by)) {
    throw new NotIndependent(
      'the requester issued your token or link. To approve the request yourself, use a token or link that somebody else issued, or sign in',
    );
  } else if (listIn(row.requester_issuers)?.includes(administratorId) === true) {
    throw new NotIndependent('this request was made with a token or link that you issued');
  }
  if (!permits(roles, permissionFor[row.change as GuardedChange])) throw new MissingPermission(row);
}

/**
 * Requires that the requester is still active and still has the permission that the change needs. Also requires that
 * the token of the request is not revoked: a thief could have made the request with a stolen token.
 * @throws Refusal 409
 */
async function requireValidRequester({ transaction }: Change, row: ApprovalRow): Promise<void> {
  if (row.requested_by === null) return;
  const { status, roles } = await findAdministrator(transaction, row.requested_by);
  if (status !== 'ACTIVE') throw new Refusal(409, `${row.requester} has been disabled since the request was made`);
  const permission = permissionFor[row.change as GuardedChange];
  if (!permits(roles, permission))
    throw new Refusal(409, `${row.requester} has lost the permission ${permission} since the request was made`);
  const tokens = transaction
    .selectFrom('administrator_tokens')
    .select('id')
    .where('id', '=', row.token_id ?? '');
  if ((await tokens.where('revoked_at', 'is not', null).executeTakeFirst()) !== undefined)
    throw new Refusal(409, `the token with which ${row.requester} made the request has been revoked`);
}

/** Makes the requested change. */
async function carryOut(context: RegistryContext, author: Author, row: ApprovalRow, guard: Guard): Promise<void> {
  const input = JSON.parse(row.input) as never;
  const subject = row.subject ?? '';
  const changes: Readonly<Record<GuardedChange, () => Promise<unknown>>> = {
    'merchant.create': () => createMerchant(context, author, input, guard),
    'merchant.change': () => changeMerchant(context, author, subject, input, guard),
    'administrator.create': () => createAdministrator(context, author, input, guard),
    'administrator.change': () => changeAdministrator(context, author, subject, input, guard),
    'approval-rules.change': () => changeRules(context, author, input, guard),
    'wallet.fund': () => approveFunding(context, author, input, guard),
  };
  await changes[row.change as GuardedChange]();
}

async function refuse(context: RegistryContext, author: Author, id: string, why: string): Promise<Refusal> {
  await makeUnpublishedChange(context, author, async (change) => {
    const row = await findRow(change.transaction, id);
    if (toApproval(row, change.now).status !== 'WAITING') return { result: null, events: [] };
    const after = await decide(change, id, { ...deciderOf(author), decision: why, status: 'REFUSED' });
    return { result: null, events: [eventOf('approval.refused', after)] };
  });
  return new Refusal(
    409,
    `The change was not made: ${why}. If the change is still wanted, request it again`,
    [],
    'approval_stale',
  );
}

function deciderOf({ administratorId, actor, reason }: Author) {
  return { decided_by: administratorId, decider: actor, decision: reason };
}
