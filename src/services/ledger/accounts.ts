import { sql } from '../../database/kysely.js';
import type { Environment } from '../identity.js';
import type { ServicesDatabase } from '../services-database.js';

/** What an account holds. The wallets of an environment and a currency are together one line. */
export interface Account {
  readonly environment: Environment;
  readonly currency: string;
  /** `float`: the operator's; `payouts`: on its way to the bank, and at it; `wallets`: the merchants'. */
  readonly account: 'float' | 'payouts' | 'wallets';
  /** In minor units, as text: the sum of many wallets may be more than a number of JSON holds exactly. */
  readonly balance: string;
}

/**
 * All accounts, of wallets by their balances, of the others by the entries. Those of an environment and a currency add up to zero.
 * It reads the whole ledger, in one statement, so that all of it is of one moment.
 */
export async function listAccounts(database: ServicesDatabase): Promise<Account[]> {
  const { rows } = await sql<Account>`
    select environment, currency, account, cast(sum(amount) as text) as balance from (
      select environment, currency, counter_account as account,
        case when type = 'credit' then -amount else amount end as amount from transactions
      union all select environment, currency, 'wallets' as account, balance as amount from wallets
    ) as movements
    group by environment, currency, account
    order by environment, currency, account`.execute(database);
  return rows;
}
