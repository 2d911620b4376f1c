import type { Payout } from './schema.js';

/** Options of the simulated bank. */
export interface BankOptions {
  /** Delay until the bank accepts a new payout. After the same delay again, the payout is paid or fails. */
  readonly delayMilliseconds: number;
  /** Account numbers and recipients for which every transfer fails. */
  readonly failingAccounts: readonly string[];
}

/** The result of a transfer. */
export type BankOutcome = { readonly status: 'successful' } | { readonly status: 'failed'; readonly reason: string };

/** Returns the result of a transfer. The same payout always has the same result. */
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
