import type { Logger } from '../../rest/error-responses.js';
import type { ServicesDatabase } from '../services-database.js';
import { readLedger } from './read-ledger.js';

/** Maximum number of wallet ids in one log line. */
const maxLoggedWallets = 20;

/** The result of one balance check of the whole ledger. */
export interface LedgerState {
  /** Number of wallets whose balance is not the sum of their entries. */
  readonly mismatchedWallets: number;
  /** Number of environment and currency pairs whose accounts do not add up to zero. */
  readonly unbalancedCurrencies: number;
  /** Time of the check in milliseconds since 1970, by the process clock. */
  readonly checkedAt: number;
}

/** Dependencies of the balance check. */
export interface BalanceCheckOptions {
  readonly database: ServicesDatabase;
  readonly now: () => number;
  readonly logger?: Logger | undefined;
}

/**
 * Compares every wallet balance with the sum of its ledger entries, and checks that all accounts add up to zero. Runs
 * at startup and every ten minutes. It only reports a mismatch, because an operator must find out whether the balance
 * or the entries are wrong.
 */
export class BalanceCheck {
  readonly #options: BalanceCheckOptions;
  #state: LedgerState | null = null;
  #lastLogged = '';

  constructor(options: BalanceCheckOptions) {
    this.#options = options;
  }

  /** The result of the last check; null until the first check has finished. */
  get state(): LedgerState | null {
    return this.#state;
  }

  /** Warnings for operators. `/readyz` shows them without authentication, so they contain no wallet ids. */
  get warnings(): string[] {
    const { mismatchedWallets = 0, unbalancedCurrencies = 0 } = this.#state ?? {};
    const wallets = `ledger mismatch: balances are not the sums of the ledger entries (number of wallets: ${mismatchedWallets})`;
    const currencies = `ledger mismatch: accounts do not add up to zero (number of currencies: ${unbalancedCurrencies})`;
    return [...(mismatchedWallets > 0 ? [wallets] : []), ...(unbalancedCurrencies > 0 ? [currencies] : [])];
  }

  /** Checks the ledger once. Resolves with false, so that the periodic task pauses before the next check. */
  async check(): Promise<boolean> {
    const { database, now, logger } = this.#options;
    const { mismatched, unbalanced } = await readLedger(database);
    const mismatchedWallets = mismatched.length;
    this.#state = { mismatchedWallets, unbalancedCurrencies: unbalanced.length, checkedAt: now() };
    // A mismatch persists until an operator repairs it, so it is logged again only when it changes.
    const found = JSON.stringify([mismatched, unbalanced]);
    if (found !== this.#lastLogged && mismatchedWallets + unbalanced.length > 0) {
      logger?.error(
        { wallets: mismatched.slice(0, maxLoggedWallets), mismatchedWallets, currencies: unbalanced },
        'ledger mismatch: wallet balances do not agree with the ledger entries. This check repairs nothing: see docs/services.md, "Wallets and the ledger"',
      );
    }
    this.#lastLogged = found;
    return false;
  }
}
