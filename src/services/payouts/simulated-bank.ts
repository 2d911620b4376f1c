import type { Payout } from './schema.js';

/** Options of the simulated bank. */
export interface BankOptions {
  /** Delay until the bank accepts a payout, and the same delay again until the bank has paid it. */
  readonly delayMilliseconds: number;
  /** Account numbers and recipients to which every transfer fails. */
  readonly failingAccounts: readonly string[];
}

/** The outcome of a transfer. */
export type BankOutcome = { readonly status: 'successful' } | { readonly status: 'failed'; readonly reason: string };

/** Returns the bank's outcome for a transfer. Every query about the same payout gives the same outcome. */
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
