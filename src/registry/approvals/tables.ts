/** A requested change that another administrator has to approve. It stays stored after the decision. */
interface ApprovalRow {
  id: string;
  /** The kind of change, such as `merchant.change`. */
  change: string;
  /**
   * The merchant that the change concerns; empty if the merchant does not exist yet, or the change concerns no
   * merchant.
   */
  merchant_id: string;
  /**
   * The id of the changed merchant, administrator or wallet. Null if the change creates a record, or changes the rules.
   */
  subject: string | null;
  /** The body of the request that asked for the change, as JSON. */
  input: string;
  /** The state before the change, as JSON, as the approver sees it; null for a new record. */
  before: string | null;
  /** The state after the change, as JSON, as the approver sees it. */
  after: string;
  /** The administrator that made the request; null if the registry itself made it. */
  requested_by: string | null;
  requester: string;
  reason: string | null;
  requested_at: number;
  expires_at: number;
  status: 'WAITING' | 'APPROVED' | 'REJECTED' | 'REFUSED';
  /**
   * The administrator that decided. Null before the decision. Also null if the registry decided, or a caller with the
   * shared token (`registry.tokenFile`).
   */
  decided_by: string | null;
  decider: string | null;
  decided_at: number | null;
  /** The reason that the decider gave, or why the change was refused. */
  decision: string | null;
}

/** The single row with the approval rules that apply now. */
interface ApprovalSettingsRow {
  id: 1;
  /** Which changes need approval, as JSON. */
  rules: string;
  /**
   * 1 if two active owners have ever existed at the same time, otherwise 0. While it is 0, a new owner needs no
   * approval.
   */
  had_second_owner: number;
}

/** The tables of approvals. */
export interface ApprovalTables {
  approvals: ApprovalRow;
  approval_settings: ApprovalSettingsRow;
}
