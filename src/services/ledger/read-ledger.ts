import { isPostgres } from '../../database/dialects.js';
import { sql } from '../../database/kysely.js';
import type { ServicesDatabase } from '../services-database.js';

/** Maximum number of rows per SQL statement, because on SQLite a statement blocks all other requests of the process. */
const batch = 5000;

/** Mismatches between the ledger entries and the balances. */
export interface LedgerReading {
  /** Ids of wallets whose balance is not the sum of their entries, oldest first. */
  readonly mismatched: readonly string[];
  /** Environments and currencies whose accounts do not add up to zero, e.g. `live NGN`. */
  readonly unbalanced: readonly string[];
}

/** Adds up the whole ledger in batches. Returns the mismatches between the sums and a snapshot of the balances. */
export async function readLedger(database: ServicesDatabase): Promise<LedgerReading> {
  const sums = new Sums();
  if (isPostgres(database)) {
    const snapshot = database.transaction().setIsolationLevel('repeatable read');
    return snapshot.execute(async (transaction) => {
      await sums.addEntries(transaction);
      return sums.compare(transaction);
    });
  }
  // On SQLite a transaction blocks the only connection, so most entries are read before the transaction. Entries are
  // appended in the order of their ids, so the transaction reads only the newest entries.
  await sums.addEntries(database);
  return database.transaction().execute(async (transaction) => {
    await sums.addEntries(transaction);
    return sums.compare(transaction);
  });
}

interface EntrySum {
  readonly wallet: string;
  /** Environment and currency, e.g. `live NGN`. */
  readonly currency: string;
  readonly sum: string;
  readonly last: number;
  readonly entries: number;
}

class Sums {
  #last = 0;
  readonly #ofWallets = new Map<string, bigint>();
  /** Sums of all accounts other than wallets, by environment and currency. */
  readonly #ofOthers = new Map<string, bigint>();

  async addEntries(database: ServicesDatabase): Promise<void> {
    for (let found = batch; found === batch;) {
      const { rows } = await sql<EntrySum>`
        select wallet_id as wallet, environment || ' ' || currency as currency, max(id) as last, count(*) as entries,
          cast(sum(case when type = 'credit' then amount else -amount end) as text) as sum
        from (select * from transactions where id > ${this.#last} order by id limit ${batch}) as batch
        group by wallet_id, environment, currency`.execute(database);
      found = rows.reduce((all, { entries }) => all + entries, 0);
      for (const { wallet, currency, sum, last } of rows) {
        this.#last = Math.max(this.#last, last);
        add(this.#ofWallets, wallet, BigInt(sum));
        add(this.#ofOthers, currency, -BigInt(sum));
      }
      await new Promise(setImmediate);
    }
  }

  async compare(database: ServicesDatabase): Promise<LedgerReading> {
    const mismatched: string[] = [];
    const ofAll = new Map(this.#ofOthers);
    for (let [last, found] = [0, batch]; found === batch;) {
      const wallets = await database
        .selectFrom('wallets')
        .select(['sequence', 'id', 'environment', 'currency', 'balance'])
        .where('sequence', '>', last)
        .orderBy('sequence')
        .limit(batch)
        .execute();
      found = wallets.length;
      for (const { sequence, id, environment, currency, balance } of wallets) {
        last = sequence;
        if (BigInt(balance) !== (this.#ofWallets.get(id) ?? 0n)) mismatched.push(id);
        add(ofAll, `${environment} ${currency}`, BigInt(balance));
      }
    }
    return { mismatched, unbalanced: [...ofAll].filter(([, sum]) => sum !== 0n).map(([name]) => name) };
  }
}

function add(sums: Map<string, bigint>, name: string, amount: bigint): void {
  sums.set(name, (sums.get(name) ?? 0n) + amount);
}
