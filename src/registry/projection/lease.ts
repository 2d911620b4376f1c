import type { DatabaseSession } from '../../database/session.js';
import type { Clock } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';

/** Dependencies of Lease. */
export interface LeaseOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  /** The unique name of this process in the lease (the right to write to the store). */
  readonly holder: string;
  /**
   * The database session. Its lock proves that this process is alive: the database releases the lock when the process
   * ends. Without the lock, other processes must wait until the lease of this process has expired.
   */
  readonly session: DatabaseSession;
  /** A monotonic clock, in milliseconds. */
  readonly monotonic?: () => number;
}

/**
 * Duration of the lease. Other registries read the lease once a second, so another registry takes over within five
 * seconds after the holder's machine has crashed.
 */
const leaseMilliseconds = 3_500;
/**
 * Age of the lease at which a holder without pending changes renews it. It equals the interval at which other processes
 * read the lease.
 */
const idleMilliseconds = 1_000;
/**
 * Age of the lease at which a holder with pending changes renews it. This age exceeds `idleMilliseconds`, because
 * `finish` also renews the lease with each batch of changes.
 */
const busyMilliseconds = leaseMilliseconds / 2;
const released = 0;
/** The first argument of `finish` if no records were written. */
export const noRecords = { names: [], revision: 0 };
/**
 * Suffix of the holder's name if its database session has the lock, which proves that the holder is alive. Earlier
 * releases treat the suffix as part of the name.
 */
const lockedMark = '+lock';

/**
 * The row of the lease, and `waiting`: the lowest revision (number) of the changes that are still to be written (the
 * outbox), or null without such changes.
 */
interface Found {
  readonly holder: string;
  readonly lease_ends_at: number;
  readonly waiting: number | null;
}

/** A lease that this process has read or written. The lease has not changed since the monotonic time `since`. */
interface Sighting {
  readonly holder: string;
  readonly lease_ends_at: number;
  readonly since: number;
}

/**
 * The right to write to the store, which only one process has at a time. With two writers, a slow writer could
 * overwrite a newer record, and a revoked key would work again.
 *
 * A lease has expired if its row has not changed for the duration of the lease. A process that waits for the lease
 * measures this on its own monotonic clock, because the clocks of machines can differ by hours.
 *
 * The holder's name shows whether its database session has a lock. The database releases this lock when the holder
 * ends. If another process gets the lock, the holder has ended, so the lease ends at once. If the name shows no lock,
 * the holder could be alive but hang, so the lease lasts for its whole duration.
 */
export class Lease {
  readonly #options: LeaseOptions;
  readonly #monotonic: () => number;
  readonly #lockedName: string;
  #sighting: Sighting | null = null;
  /** The lease that this process wrote last. `since` is the earliest time at which other processes can have read it. */
  #own: Sighting | null = null;
  #term = 0;
  /**
   * Whether another process was seen with the lease since this process last took it. The row alone does not show this
   * after a failover to a database that lacks the other process's takeover.
   */
  #isLost = false;

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.#lockedName = options.holder + lockedMark;
    this.#monotonic = options.monotonic ?? (() => performance.now());
  }

  /**
   * A number that grows each time this process takes the lease from another process. The other process might have
   * changed the store without this process noticing.
   */
  get term(): number {
    return this.#term;
  }

  /** Takes or renews the lease if possible. @returns false if another process holds it */
  async take(): Promise<boolean> {
    const { database, clock, holder, session } = this.#options;
    // Takes the lock before reading the row. Only one session can have the lock. So if this process gets the lock, and
    // the row says that another holder has it, that holder has ended.
    const isLocked = await session.hold();
    const name = isLocked ? this.#lockedName : holder;
    const before = this.#monotonic();
    const found = await this.#read();
    if (!this.#ownNames.includes(found.holder)) this.#isLost = true;
    if (!this.#isLost && this.#isKept(found, name)) return true;
    const over = this.#overAt(before, found, isLocked);
    const since = this.#monotonic();
    const lease = { holder: name, lease_ends_at: clock.now() + leaseMilliseconds };
    const { numUpdatedRows } = await database
      .updateTable('projector')
      .set(lease)
      .where((it) => {
        const free = [it('holder', 'in', this.#ownNames), it('lease_ends_at', '=', released)];
        if (over === null) return it.or(free);
        // Updates the row only if it has not changed since the read. Its holder might have renewed the lease meanwhile,
        // or a third process might have taken it.
        return it.or([...free, it.and([it('holder', '=', over.holder), it('lease_ends_at', '=', over.lease_ends_at)])]);
      })
      .executeTakeFirstOrThrow();
    if (numUpdatedRows > 0n) {
      this.#own = { ...lease, since };
      if (this.#isLost) this.#term += 1;
      this.#isLost = false;
      return true;
    }
    this.#isLost = true;
    // Releases the lock again. The holder of the lease might have lost the lock only briefly, and needs it back.
    if (isLocked) await session.release();
    return false;
  }

  /**
   * Call this after records were written. If this process still holds the lease, renews it and runs `whenKept`.
   * Otherwise the written records could be outdated. So this function puts their names back into the outbox (records to
   * write), and the new holder writes these records again.
   * @returns whether this process still holds the lease
   */
  async finish(
    written: { readonly names: readonly string[]; readonly revision: number },
    whenKept: (transaction: RegistryDatabase) => Promise<void>,
  ): Promise<boolean> {
    const { database, clock } = this.#options;
    const since = this.#monotonic();
    const lease_ends_at = clock.now() + leaseMilliseconds;
    const holder = await database.transaction().execute(async (transaction) => {
      const kept = await this.#prolong(transaction, lease_ends_at);
      if (kept !== null) {
        await whenKept(transaction);
        return kept;
      }
      const rows = written.names.map((name) => ({ name, revision: written.revision }));
      if (rows.length > 0) {
        await transaction
          .insertInto('outbox')
          .values(rows)
          .onConflict((conflict) => conflict.doNothing())
          .execute();
      }
      return null;
    });
    if (holder === null) this.#isLost = true;
    else this.#own = { holder, lease_ends_at, since };
    return holder !== null;
  }

  /**
   * Like `finish`, but without `whenKept`. If this process renewed the lease recently, this function only reads the
   * lease.
   * @returns whether this process still holds the lease
   */
  async keep(written: { readonly names: readonly string[]; readonly revision: number }): Promise<boolean> {
    const own = this.#own;
    if (own !== null && this.#isKept(await this.#read(), own.holder)) return true;
    return this.finish(written, () => Promise.resolve());
  }

  /** Releases the lease, so that another process can take it at once. */
  async giveUp(): Promise<void> {
    await this.#options.database
      .updateTable('projector')
      .set({ lease_ends_at: released })
      .where('holder', 'in', this.#ownNames)
      .execute();
  }

  get #ownNames(): string[] {
    return [this.#options.holder, this.#lockedName];
  }

  async #read(): Promise<Found> {
    return this.#options.database
      .selectFrom('projector')
      .select((it) => [
        'holder',
        'lease_ends_at',
        it.selectFrom('outbox').select('revision').orderBy('revision').limit(1).as('waiting'),
      ])
      .executeTakeFirstOrThrow();
  }

  /**
   * Whether this process can skip the renewal of the lease, to save a disk flush before and after each change. True if
   * the lease is unchanged, and was renewed so recently that no other process can have taken it. The name must match
   * too, because it shows other processes whether this process has the lock.
   *
   * A process that is paused after this check can lose the lease nevertheless. The store rejects the outdated writes of
   * that process, because the newer records in the store have higher revisions (numbers of changes). `finish` detects
   * the loss.
   */
  #isKept({ holder, lease_ends_at, waiting }: Found, name: string): boolean {
    const own = this.#own;
    if (own === null || holder !== name || own.holder !== name || own.lease_ends_at !== lease_ends_at) return false;
    return this.#monotonic() - own.since < (waiting === null ? idleMilliseconds : busyMilliseconds);
  }

  /**
   * Returns the lease of another process if this process is allowed to take it; otherwise null. This process is allowed
   * to take the lease if the holder has ended, or has not renewed it for the whole duration of the lease.
   */
  #overAt(before: number, { holder, lease_ends_at }: Found, isLocked: boolean): Omit<Sighting, 'since'> | null {
    if (this.#ownNames.includes(holder)) return null;
    if (isLocked && holder.endsWith(lockedMark)) return { holder, lease_ends_at };
    const seen = this.#sighting;
    if (seen?.holder === holder && seen.lease_ends_at === lease_ends_at) {
      return before - seen.since >= leaseMilliseconds ? seen : null;
    }
    this.#sighting = { holder, lease_ends_at, since: this.#monotonic() };
    return null;
  }

  /**
   * Renews the lease unless another process has taken it. Also renews an expired lease.
   * @returns the name under which this process holds the lease; null if another process has taken it
   */
  async #prolong(database: RegistryDatabase, lease_ends_at: number): Promise<string | null> {
    const row = await database
      .updateTable('projector')
      .set({ lease_ends_at })
      .where('holder', 'in', this.#ownNames)
      .returning('holder')
      .executeTakeFirst();
    return row?.holder ?? null;
  }
}
