import type { Payout } from './schema.js';

/** How the bank behaves that stands in for a real one. */
export interface BankOptions {
  /** How long a payout waits until the bank takes it, and again until the bank has paid it. */
  readonly delayMilliseconds: number;
  /** Account numbers and recipients that the bank does not pay to. */
  readonly failingAccounts: readonly string[];
}

/** What came of a transfer. */
export type BankOutcome = { readonly status: 'successful' } | { readonly status: 'failed'; readonly reason: string };

/** What the bank says of a transfer, as often as it is asked: the same payout always has the same outcome. */
export function bankOutcomeOf(
  { failingAccounts }: BankOptions,
  { destinationAccountNumber, recipient }: Pick<Payout, 'destinationAccountNumber' | 'recipient'>,
): BankOutcome {
  const account = destinationAccountNumber ?? recipient;
  const fails = account !== null && failingAccounts.includes(account);
  return fails
    ? { status: 'failed', reason: 'The bank does not know the destination account' }
    : { status: 'successful' };
}
