/** A change that waits for, or was decided by, another administrator. */
interface ApprovalRow {
  id: string;
  /** The kind of change, such as `merchant.change`. */
  change: string;
  /** The merchant that the change concerns; empty if there is none yet, or none at all. */
  merchant_id: string;
  /** The id of the changed merchant or administrator; null for a new one that does not exist yet. */
  subject: string | null;
  /** The body of the request, as JSON. */
  input: string;
  /** What the request shows: the state before and after the change, as JSON. */
  before: string | null;
  after: string;
  /** The administrator that made the request; null for the registry itself. */
  requested_by: string | null;
  requester: string;
  reason: string | null;
  requested_at: number;
  expires_at: number;
  status: 'WAITING' | 'APPROVED' | 'REJECTED' | 'REFUSED';
  /** The administrator that decided; null while nobody has, and for the shared token. */
  decided_by: string | null;
  decider: string | null;
  decided_at: number | null;
  /** The reason that the decider gave, or why the change was refused. */
  decision: string | null;
}

/** The single row with the rules in force. */
interface ApprovalSettingsRow {
  id: 1;
  /** Which changes need approval, as JSON. */
  rules: string;
  /** 1 once there have been two active owners. From then on a new owner may need approval. */
  had_second_owner: number;
}

/** The tables of approvals. */
export interface ApprovalTables {
  approvals: ApprovalRow;
  approval_settings: ApprovalSettingsRow;
}
