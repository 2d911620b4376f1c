import type { Logger } from '../../rest/answer-errors.js';
import type { ServicesDatabase } from '../services-database.js';
import { readLedger } from './read-ledger.js';

/** How many wallets the log names. */
const mostNamed = 20;

/** What a look at the whole ledger has found. */
export interface LedgerState {
  /** Wallets whose balance is not the sum of their entries. */
  readonly mismatchedWallets: number;
  /** Environments and currencies whose accounts do not add up to zero. */
  readonly unbalancedCurrencies: number;
  /** Milliseconds since 1970, by the clock of the process. */
  readonly checkedAt: number;
}

/** What the check works with. */
export interface BalanceCheckOptions {
  readonly database: ServicesDatabase;
  readonly now: () => number;
  readonly logger?: Logger | undefined;
}

/**
 * Compares every balance with its entries, at the start and every ten minutes. It reports a difference and mends none: only an operator
 * can find out which of the two is right.
 */
export class BalanceCheck {
  readonly #options: BalanceCheckOptions;
  #state: LedgerState | null = null;
  #told = '';

  constructor(options: BalanceCheckOptions) {
    this.#options = options;
  }

  /** What was found last; null before the first look has ended. */
  get state(): LedgerState | null {
    return this.#state;
  }

  /** What an operator has to know, in words that name no wallet: whoever asks for readiness needs no token. */
  get warnings(): string[] {
    const { mismatchedWallets = 0, unbalancedCurrencies = 0 } = this.#state ?? {};
    const wallets = `the ledger does not agree: wallets whose balance is not the sum of their entries: ${mismatchedWallets}`;
    const currencies = `the accounts do not add up to zero: currencies: ${unbalancedCurrencies}`;
    return [...(mismatchedWallets > 0 ? [wallets] : []), ...(unbalancedCurrencies > 0 ? [currencies] : [])];
  }

  /** Looks once. Resolves with false: there is no more to do now. */
  async look(): Promise<boolean> {
    const { database, now, logger } = this.#options;
    const { mismatched, unbalanced } = await readLedger(database);
    const mismatchedWallets = mismatched.length;
    this.#state = { mismatchedWallets, unbalancedCurrencies: unbalanced.length, checkedAt: now() };
    // Again only when it has changed: it stays until somebody has looked.
    const found = JSON.stringify([mismatched, unbalanced]);
    if (found !== this.#told && mismatchedWallets + unbalanced.length > 0) {
      logger?.error(
        { wallets: mismatched.slice(0, mostNamed), mismatchedWallets, currencies: unbalanced },
        'the ledger does not agree with the balances; nothing was changed: see docs/services.md, "Wallets and the ledger"',
      );
    }
    this.#told = found;
    return false;
  }
}
