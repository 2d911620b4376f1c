import type { Permission } from '../administrators/roles.js';
import type { Change } from '../change.js';
import type { NewEvent } from '../events/repository.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { FundingLimits } from '../../rest/services-token.js';

/** Which changes need the approval of another administrator (`registry.approvals`). */
export interface ApprovalRules {
  /** A merchant goes live. */
  readonly goLive: boolean;
  /** Somebody becomes an owner, or an owner gets another identity at the OpenID provider. */
  readonly owners: boolean;
  /** These rules change. */
  readonly changes: boolean;
  /** Amounts above which funding a wallet needs approval; null: it never does. */
  readonly fundingAbove: FundingLimits | null;
}

/** The rules without which no change needs approval. */
export const noRules: ApprovalRules = { goLive: false, owners: false, changes: false, fundingAbove: null };

/** The changes that may need approval, with the permission that both administrators need. */
export const permissionFor = {
  'merchant.create': 'merchants:create',
  'merchant.change': 'merchants:write',
  'administrator.create': 'administrators:write',
  'administrator.change': 'administrators:write',
  'approval-rules.change': 'administrators:write',
  'wallet.fund': 'wallets:fund',
} as const satisfies Readonly<Record<string, Permission>>;

/** The kind of a change that may need approval. */
export type GuardedChange = keyof typeof permissionFor;

/** What a change would do. */
export interface Proposal {
  readonly change: GuardedChange;
  /** The rule that requires approval for it; null: none does. */
  readonly rule: 'goLive' | 'owners' | 'changes' | null;
  readonly merchantId: string;
  /** The id of the changed merchant or administrator; null for a new one. */
  readonly subject: string | null;
  readonly before: object | null;
  readonly after: object;
}

/**
 * Permits a change, in the transaction of the change and before it is made.
 * @returns events to store with the change
 * @throws ApprovalNeeded or Refusal
 */
export type Guard = (change: Change, proposal: Proposal) => Promise<readonly NewEvent[]>;

/** Thrown to roll a change back that has to wait for approval. */
export class ApprovalNeeded extends Error {
  constructor(readonly proposal: Proposal) {
    super(`${proposal.change} needs approval`);
  }
}

/** Permits what needs no approval by the rules in force. */
export const byRules: Guard = async ({ transaction }, proposal) => {
  if (proposal.rule !== null && (await rulesIn(transaction))[proposal.rule]) throw new ApprovalNeeded(proposal);
  return [];
};

/** Permits every change: for the registry's own changes, which no administrator requests. */
export const unguarded: Guard = () => Promise.resolve([]);

/** Returns the rules in force. */
export async function rulesIn(database: RegistryDatabase): Promise<ApprovalRules> {
  const row = await database.selectFrom('approval_settings').select('rules').executeTakeFirst();
  return { ...noRules, ...(JSON.parse(row?.rules ?? '{}') as Partial<ApprovalRules>) };
}
