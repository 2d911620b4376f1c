import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';

const moment = Type.String({ format: 'date-time' });
const textOrNull = Type.Union([Type.Null(), Type.String()]);
const snapshot = Type.Union([Type.Null(), Type.Record(Type.String(), Type.Unknown())]);

/**
 * The states of a request for approval. REFUSED: approved, but the change failed. EXPIRED is never stored: a request
 * with the stored status WAITING is shown as EXPIRED after its `expires_at`.
 */
export const approvalStatuses = ['WAITING', 'APPROVED', 'REJECTED', 'REFUSED', 'EXPIRED'] as const;

/** A request for approval, as the admin API shows it. */
export const approvalSchema = Type.Object({
  id: Type.String(),
  change: Type.String({ description: 'the kind of change, such as merchant.change' }),
  merchantId: Type.String({ description: 'empty if the change concerns no merchant' }),
  subject: textOrNull,
  before: snapshot,
  after: snapshot,
  needs: Type.String({ description: 'the permission that an administrator must have to approve the request' }),
  status: Type.String({ description: approvalStatuses.join(', ') }),
  requestedBy: textOrNull,
  requester: Type.String(),
  reason: textOrNull,
  requestedAt: moment,
  expiresAt: moment,
  decidedBy: textOrNull,
  decider: textOrNull,
  decidedAt: Type.Union([Type.Null(), moment]),
  decision: textOrNull,
});

/** A request for approval in the admin API. */
export type Approval = Static<typeof approvalSchema>;

/** The query of `GET /approvals`. */
export const approvalsQuery = Type.Object({
  ...pagingQuery.properties,
  status: Type.Optional(
    Type.Enum([...approvalStatuses], { type: 'string', description: `one of ${approvalStatuses.join(', ')}` }),
  ),
});
