import type { Permission } from '../administrators/roles.js';
import type { Change } from '../change.js';
import type { NewEvent } from '../events/repository.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { FundingLimits } from '../../rest/services-token.js';

/** Which changes need the approval of another administrator (`registry.approvals`). */
export interface ApprovalRules {
  /** Whether a change by which a merchant goes live needs approval. */
  readonly goLive: boolean;
  /**
   * Whether a change by which an administrator becomes an owner, or an owner gets another OpenID identity, needs
   * approval.
   */
  readonly owners: boolean;
  /** Whether a change of these rules needs approval. */
  readonly changes: boolean;
  /**
   * For each currency, an amount in minor units. The funding of a wallet with more than this amount needs approval. In
   * a currency that is not listed, each funding needs approval. Null: no funding needs approval.
   */
  readonly fundingAbove: FundingLimits | null;
}

/** The rules under which no change needs approval. */
export const noRules: ApprovalRules = { goLive: false, owners: false, changes: false, fundingAbove: null };

/** The permission for each change that can need approval. Both the requester and the approver need this permission. */
export const permissionFor = {
  'merchant.create': 'merchants:create',
  'merchant.change': 'merchants:write',
  'administrator.create': 'administrators:write',
  'administrator.change': 'administrators:write',
  'approval-rules.change': 'administrators:write',
  'wallet.fund': 'wallets:fund',
} as const satisfies Readonly<Record<string, Permission>>;

/** The kind of a change that can need approval. */
export type GuardedChange = keyof typeof permissionFor;

/** A change before it is made. */
export interface Proposal {
  readonly change: GuardedChange;
  /**
   * The rule that decides whether the change needs approval; null: no rule applies, so the guard requires no approval.
   */
  readonly rule: 'goLive' | 'owners' | 'changes' | null;
  readonly merchantId: string;
  /**
   * The id of the changed merchant, administrator or wallet. Null if the change creates a record, or changes the rules.
   */
  readonly subject: string | null;
  /** The id that the new record will have; omitted if the change creates no record. */
  readonly created?: string;
  readonly before: object | null;
  readonly after: object;
}

/**
 * Checks whether a change is allowed now. Runs in the change's transaction, before the change is made.
 * @returns further events to store with the change
 * @throws ApprovalNeeded or Refusal
 */
export type Guard = (change: Change, proposal: Proposal) => Promise<readonly NewEvent[]>;

/** Thrown to roll back a change that has to wait for approval. */
export class ApprovalNeeded extends Error {
  constructor(readonly proposal: Proposal) {
    super(`${proposal.change} needs approval`);
  }
}

/** Permits a change unless the approval rules that apply now require approval for it. */
export const byRules: Guard = async ({ transaction }, proposal) => {
  if (proposal.rule !== null && (await rulesIn(transaction))[proposal.rule]) throw new ApprovalNeeded(proposal);
  return [];
};

/**
 * Permits every change. Used for changes to which no approval rule applies, such as changes of a merchant's members.
 */
export const unguarded: Guard = () => Promise.resolve([]);

/** Returns the approval rules that apply now. */
export async function rulesIn(database: RegistryDatabase): Promise<ApprovalRules> {
  const row = await database.selectFrom('approval_settings').select('rules').executeTakeFirst();
  return { ...noRules, ...(JSON.parse(row?.rules ?? '{}') as Partial<ApprovalRules>) };
}
