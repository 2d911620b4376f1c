import type { DatabaseSession } from '../../database/session/database-session.js';
import type { Clock } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';

/** Who projects, and for how long nobody else may. */
export interface LeaseOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  /** Unique to this process. */
  readonly holder: string;
  /** Its lock proves that this process lives. Where it is not held, the lease alone has to do. */
  readonly session: DatabaseSession;
  /** A time in milliseconds that only goes forward. */
  readonly monotonic?: () => number;
}

const leaseMilliseconds = 10_000;
const givenUp = 0;
/** Behind the name of a holder that had the lock of its session. Earlier releases take it for a part of the name. */
const lockedMark = '+lock';

/** The lease of another process, as it was found, and since when by one's own time. */
interface Sighting {
  readonly holder: string;
  readonly lease_ends_at: number;
  readonly since: number;
}

/**
 * Makes sure that one process projects at a time. Otherwise a slow one could put back a record that another one has
 * already replaced, and a revoked key would work again. A lease is over that has not been prolonged for its whole length,
 * by the time of whoever waits for it: the clock of another machine, or of the time before a restart, may be wrong by hours.
 * A holder's name says whether it had the lock of its session. Such a lease is over as soon as another process has the lock,
 * for its holder has ended; without the lock, its holder may be one that hangs, so the lease's length counts.
 */
export class Lease {
  readonly #options: LeaseOptions;
  readonly #monotonic: () => number;
  readonly #lockedName: string;
  #sighting: Sighting | null = null;

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.#lockedName = options.holder + lockedMark;
    this.#monotonic = options.monotonic ?? (() => performance.now());
  }

  /** Takes or prolongs the lease; false where another process has it. */
  async take(): Promise<boolean> {
    const { database, clock, holder, session } = this.#options;
    // Before the row is read: what it says of a holder with the lock is then about one that had it earlier.
    const isLocked = await session.hold();
    const over = await this.#lookAtOther(isLocked);
    const { numUpdatedRows } = await database
      .updateTable('projector')
      .set({ holder: isLocked ? this.#lockedName : holder, lease_ends_at: clock.now() + leaseMilliseconds })
      .where((it) => {
        const free = [it('holder', 'in', this.#ownNames), it('lease_ends_at', '=', givenUp)];
        if (over === null) return it.or(free);
        // As it was found: it may have been prolonged since, or taken by a third.
        return it.or([...free, it.and([it('holder', '=', over.holder), it('lease_ends_at', '=', over.lease_ends_at)])]);
      })
      .executeTakeFirstOrThrow();
    if (numUpdatedRows > 0n) return true;
    // It is for the holder, which may have lost it for a moment.
    if (isLocked) await session.release();
    return false;
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
    await this.#options.database
      .updateTable('projector')
      .set({ lease_ends_at: givenUp })
      .where('holder', 'in', this.#ownNames)
      .execute();
  }

  get #ownNames(): string[] {
    return [this.#options.holder, this.#lockedName];
  }

  /** The lease of another process that has ended, or that has been as it is for its whole length; null where there is none. */
  async #lookAtOther(isLocked: boolean): Promise<Pick<Sighting, 'holder' | 'lease_ends_at'> | null> {
    const before = this.#monotonic();
    const row = await this.#options.database
      .selectFrom('projector')
      .select(['holder', 'lease_ends_at'])
      .executeTakeFirstOrThrow();
    if (this.#ownNames.includes(row.holder)) return null;
    if (isLocked && row.holder.endsWith(lockedMark)) return row;
    const seen = this.#sighting;
    if (seen?.holder === row.holder && seen.lease_ends_at === row.lease_ends_at) {
      return before - seen.since >= leaseMilliseconds ? seen : null;
    }
    this.#sighting = { ...row, since: this.#monotonic() };
    return null;
  }

  /** An expired lease that nobody else has taken is kept; one that another process has had in between is not. */
  async #prolong(database: RegistryDatabase): Promise<boolean> {
    const { numUpdatedRows } = await database
      .updateTable('projector')
      .set({ lease_ends_at: this.#options.clock.now() + leaseMilliseconds })
      .where('holder', 'in', this.#ownNames)
      .executeTakeFirstOrThrow();
    return numUpdatedRows > 0n;
  }
}
