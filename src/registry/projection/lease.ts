import type { Clock } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';

/** Who projects, and for how long nobody else may. */
export interface LeaseOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  /** Unique to this process. */
  readonly holder: string;
}

const leaseMilliseconds = 10_000;

/**
 * Makes sure that one process projects at a time. Otherwise a slow one could put back a record that another one has
 * already replaced, and a revoked key would work again.
 */
export class Lease {
  readonly #options: LeaseOptions;

  constructor(options: LeaseOptions) {
    this.#options = options;
  }

  /** Takes or prolongs the lease; false where another process has it. */
  async take(): Promise<boolean> {
    const { database, clock, holder } = this.#options;
    const now = clock.now();
    const { numUpdatedRows } = await database
      .updateTable('projector')
      .set({ holder, lease_ends_at: now + leaseMilliseconds })
      .where((it) => it.or([it('holder', '=', holder), it('lease_ends_at', '<=', now)]))
      .executeTakeFirstOrThrow();
    return numUpdatedRows > 0n;
  }

  /**
   * After records were written: does what is left to do, if the lease was kept. If it was lost meanwhile, the records may
   * be older than what the new holder wrote, so they are put back into the outbox for it to write again.
   */
  async finish(
    written: { readonly names: readonly string[]; readonly revision: number },
    whenKept: (transaction: RegistryDatabase) => Promise<void>,
  ): Promise<boolean> {
    return this.#options.database.transaction().execute(async (transaction) => {
      if (await this.#prolong(transaction)) {
        await whenKept(transaction);
        return true;
      }
      const rows = written.names.map((name) => ({ name, revision: written.revision }));
      if (rows.length > 0) {
        await transaction
          .insertInto('outbox')
          .values(rows)
          .onConflict((conflict) => conflict.doNothing())
          .execute();
      }
      return false;
    });
  }

  /** Lets the next process begin at once. */
  async giveUp(): Promise<void> {
    const { database, holder } = this.#options;
    await database.updateTable('projector').set({ lease_ends_at: 0 }).where('holder', '=', holder).execute();
  }

  /** An expired lease that nobody else has taken is kept; one that another process has had in between is not. */
  async #prolong(database: RegistryDatabase): Promise<boolean> {
    const { clock, holder } = this.#options;
    const { numUpdatedRows } = await database
      .updateTable('projector')
      .set({ lease_ends_at: clock.now() + leaseMilliseconds })
      .where('holder', '=', holder)
      .executeTakeFirstOrThrow();
    return numUpdatedRows > 0n;
  }
}
