import type { Logger } from '../../gateway/store-ports.js';
import { makeUnpublishedChange } from '../change.js';
import { type Author, registryAuthor } from '../events/author.js';
import type { RegistryContext } from '../registry-context.js';
import { ApprovalNeeded, type ApprovalRules, byRules, type Guard, noRules, rulesIn } from './guard.js';
import { fileRequest, waitingOf, decide, eventOf } from './requests.js';

type Context = Pick<RegistryContext, 'database' | 'clock' | 'random'>;

/** Replaces the approval rules in force. Returns false if the given rules are in force already. */
export function changeRules(context: Context, author: Author, rules: ApprovalRules, guard: Guard): Promise<boolean> {
  return makeUnpublishedChange(context, author, async (change) => {
    const before = await rulesIn(change.transaction);
    const after = canonical(rules);
    const event = { merchantId: '', keyId: null, before, after } as const;
    const proposal = { ...event, change: 'approval-rules.change', subject: null } as const;
    const isSame = JSON.stringify(before) === JSON.stringify(after);
    const more = await guard(change, { ...proposal, rule: isSame ? null : 'changes' });
    if (isSame) return { result: false, events: more };
    await change.transaction
      .updateTable('approval_settings')
      .set({ rules: JSON.stringify(after) })
      .execute();
    return { result: true, events: [{ ...event, action: 'approval-rules.changed' }, ...more] };
  });
}

/**
 * Applies the configured approval rules when the registry starts. First rejects the registry's own waiting requests for
 * rules that are no longer configured. If the stored rules require approval for a change of the rules, the stored rules
 * stay in force, and the registry requests approval for the configured rules.
 */
export async function applyConfiguredRules(
  context: Context,
  configured: ApprovalRules,
  logger: Logger | undefined,
): Promise<void> {
  try {
    await rejectOthers(context, configured);
    if (await changeRules(context, registryAuthor, configured, byRules)) {
      logger?.info({ rules: configured }, 'the approval rules of the configuration are in force');
    }
  } catch (error) {
    if (!(error instanceof ApprovalNeeded)) throw error;
    const requester = { author: registryAuthor, issuers: [], tokenId: null };
    const { id, expiresAt } = await fileRequest(context, requester, error.proposal, configured);
    logger?.warn(
      { approvalId: id, expiresAt, configured, inForce: error.proposal.before },
      `registry.approvals has changed, and the new rules wait for approval: an owner must run "merchant-gateway approvals approve ${id}"`,
    );
  }
}

/** Returns the rules with their members in a fixed order, so that equal rules give equal JSON. */
function canonical({ fundingAbove, ...rules }: ApprovalRules): ApprovalRules {
  const sorted = fundingAbove === null ? null : Object.fromEntries(Object.entries(fundingAbove).toSorted());
  return { ...noRules, ...rules, fundingAbove: sorted };
}

function rejectOthers(context: Context, configured: ApprovalRules): Promise<void> {
  return makeUnpublishedChange(context, registryAuthor, async (change) => {
    const events = [];
    for (const { id, input } of await waitingOf(change.transaction, null, change.now)) {
      if (input === JSON.stringify(configured)) continue;
      const decider = { decided_by: null, decider: 'registry', decision: 'the configuration has changed' };
      events.push(eventOf('approval.rejected', await decide(change, id, { ...decider, status: 'REJECTED' })));
    }
    return { result: undefined, events };
  });
}
