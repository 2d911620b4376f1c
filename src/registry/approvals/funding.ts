import { Refusal } from '../../rest/refusal.js';
import type { Funding } from '../../rest/services-token.js';
import type { Caller } from '../administrators/caller.js';
import { makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Guard, Proposal } from './guard.js';
import { fileRequest, findRow, lifetimeMilliseconds, type Requester, toApproval } from './requests.js';
import type { Approval } from './schema.js';

type Context = Pick<RegistryContext, 'database' | 'clock' | 'random'>;

/**
 * Stores a request to fund a wallet. The registry checks neither the amount nor the wallet; the services check both
 * when the money moves.
 * @throws Refusal if the caller uses the shared token, which identifies no person
 */
export function requestFunding(context: Context, requester: Requester, funding: Funding): Promise<Approval> {
  if (requester.author.administratorId === null) {
    throw new Refusal(
      403,
      'The shared token identifies no person: use a token of your own',
      [],
      'approval_needs_identity',
    );
  }
  return fileRequest(context, requester, proposalOf(funding), funding);
}

/**
 * Approves a funding. After the approval, the requester sends the funding to the services. The services move money only
 * once per reference, the id that the requester chose for the funding.
 */
export function approveFunding(context: Context, author: Author, funding: Funding, guard: Guard): Promise<null> {
  return makeUnpublishedChange(context, author, async (change) => ({
    result: null,
    events: await guard(change, proposalOf(funding)),
  }));
}

/**
 * Returns a funding that the caller requested and another administrator approved less than 24 hours ago.
 * @throws Refusal
 */
export async function approvedFunding(
  database: RegistryDatabase,
  { administratorId }: Caller,
  id: string,
  now: number,
): Promise<Funding> {
  const row = await findRow(database, id);
  if (row.change !== 'wallet.fund' || administratorId === null || row.requested_by !== administratorId) {
    throw Refusal.notFound('Approval');
  }
  const { status } = toApproval(row, now);
  const isOld = now - (row.decided_at ?? now) >= lifetimeMilliseconds;
  if (status === 'APPROVED' && !isOld) return JSON.parse(row.input) as Funding;
  // If the money was moved already, the services report this for the same reference, even without an approval. With a
  // new reference, they would move the money again.
  const why =
    status === 'APPROVED'
      ? 'was approved more than 24 hours ago, so its approval has expired: send the funding again with the same reference, without the approval'
      : `is not approved: its status is ${status}`;
  throw new Refusal(409, `The request ${why}`, [], 'approval_not_approved');
}

function proposalOf(funding: Funding): Proposal {
  const { walletId, environment, currency, amount, reference } = funding;
  const after = { walletId, environment, currency, amount, reference };
  return { change: 'wallet.fund', rule: null, merchantId: '', subject: walletId, before: null, after };
}
