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
   * The id of the changed merchant, administrator or wallet. If the change creates a record, this is null before the
   * approval, and the id of the new record afterwards. Always null if the change concerns the approval rules.
   */
  subject: string | null;
  /** The body of the request that asked for the change, as JSON. */
  input: string;
  /**
   * The state before the change, as JSON, as the approver sees it. Null for a new record and for the funding of a
   * wallet.
   */
  before: string | null;
  /** The state after the change, as JSON, as the approver sees it. */
  after: string;
  /** The administrator that made the request; null if the registry itself made it. */
  requested_by: string | null;
  requester: string;
  /**
   * The ids of the administrators who issued the credential of the request, as a JSON list. They could know the
   * credential, so they must not approve the request. Null if there are none, and in a request that the previous
   * release stored.
   */
  requester_issuers: string | null;
  /**
   * The token with which the request was made. For a request from the console, the token that created the link to the
   * session. If this token is revoked, the request can no longer be approved. Null for other credentials, such as the
   * token of a command-line sign-in, and in a request that the previous release stored.
   */
  token_id: string | null;
  reason: string | null;
  requested_at: number;
  expires_at: number;
  status: 'WAITING' | 'APPROVED' | 'REJECTED' | 'REFUSED';
  /**
   * The administrator that decided. Null before the decision. Also null if the decision was made by the registry, or
   * with the shared token (`registry.tokenFile`).
   */
  decided_by: string | null;
  decider: string | null;
  decided_at: number | null;
  /**
   * The reason that the decider gave, or the reason why the change was refused. Null before the decision, or if the
   * decider gave no reason.
   */
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
