import type { DatabaseSession } from '../../database/session.js';
import type { Clock } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';

/** What the lease needs to let only one process project, and to exclude all others. */
export interface LeaseOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  /** Unique to this process. */
  readonly holder: string;
  /** Its lock proves that this process is alive. Without the lock only the lease's length counts. */
  readonly session: DatabaseSession;
  /** A monotonic clock, in milliseconds. */
  readonly monotonic?: () => number;
}

/**
 * Other registries look once a second, so one takes over within five seconds after the holder's machine has crashed.
 */
const leaseMilliseconds = 3_500;
/** Age at which an idle holder renews its lease: the interval of its looks. */
const idleMilliseconds = 1_000;
/** The same while changes wait: `finish` renews the lease with each batch. Idle holders renew before this age. */
const busyMilliseconds = leaseMilliseconds / 2;
const released = 0;
/**
 * Suffix of the name of a holder with the lock of its session. Earlier releases read the suffix as part of the name.
 */
const lockedMark = '+lock';

/** The row of the lease, and the oldest revision in the outbox; null if the outbox is empty. */
interface Found {
  readonly holder: string;
  readonly lease_ends_at: number;
  readonly waiting: number | null;
}

/** A lease as this process found or wrote it, and since when by its monotonic clock. */
interface Sighting {
  readonly holder: string;
  readonly lease_ends_at: number;
  readonly since: number;
}

/**
 * Lets one process at a time project. With two, a slow process could overwrite a record that the other one has already
 * replaced, and a revoked key would work again.
 * A waiting process treats a lease as expired if the row has not changed for the lease's whole length. It measures that
 * by its own monotonic clock: the clock of another machine, or from before a restart, may be wrong by hours.
 * The holder's name records whether the holder had the lock of its session. The lease of a lock holder ends as soon as
 * another process gets the lock, which proves that the holder has ended. A holder without the lock may only hang, so
 * its lease runs for the whole length.
 */
export class Lease {
  readonly #options: LeaseOptions;
  readonly #monotonic: () => number;
  readonly #lockedName: string;
  #sighting: Sighting | null = null;
  /** What this process wrote last. `since` is the earliest time from which other processes count its length. */
  #own: Sighting | null = null;

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.#lockedName = options.holder + lockedMark;
    this.#monotonic = options.monotonic ?? (() => performance.now());
  }

  /** Takes, keeps or renews the lease. @returns false if another process holds it */
  async take(): Promise<boolean> {
    const { database, clock, holder, session } = this.#options;
    // Lock before reading the row: a holder with the lock in that row has then already lost it.
    const isLocked = await session.hold();
    const name = isLocked ? this.#lockedName : holder;
    const before = this.#monotonic();
    const found = await this.#read();
    if (this.#isKept(found, name)) return true;
    const over = this.#overAt(before, found, isLocked);
    const since = this.#monotonic();
    const lease = { holder: name, lease_ends_at: clock.now() + leaseMilliseconds };
    const { numUpdatedRows } = await database
      .updateTable('projector')
      .set(lease)
      .where((it) => {
        const free = [it('holder', 'in', this.#ownNames), it('lease_ends_at', '=', released)];
        if (over === null) return it.or(free);
        // Matches the row as it was found: its holder may have renewed it, or a third process may have taken it.
        return it.or([...free, it.and([it('holder', '=', over.holder), it('lease_ends_at', '=', over.lease_ends_at)])]);
      })
      .executeTakeFirstOrThrow();
    if (numUpdatedRows > 0n) {
      this.#own = { ...lease, since };
      return true;
    }
    // Leave the lock to the lease's holder, which may have lost it only briefly.
    if (isLocked) await session.release();
    return false;
  }

  /**
   * Runs `whenKept` after records were written, if this process still holds the lease. If it lost the lease, the
   * records may be older than those of the new holder, so they go back into the outbox and the new holder writes them
   * again.
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
    if (holder !== null) this.#own = { holder, lease_ends_at, since };
    return holder !== null;
  }

  /**
   * Like `finish` without changes of its own. If no other process can have taken the lease since this process last wrote
   * it, a read is enough.
   */
  async keep(written: { readonly names: readonly string[]; readonly revision: number }): Promise<boolean> {
    const own = this.#own;
    if (own !== null && this.#isKept(await this.#read(), own.holder)) return true;
    return this.finish(written, () => Promise.resolve());
  }

  /** Lets the next process take the lease at once. */
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
   * Whether the row is as this process last wrote it, recently enough. A read then serves instead of a write, which
   * would cost a disk flush before and after each change. No other process takes the lease before its whole length has
   * passed; a recent lease has at least half of that left.
   * The name must match too: it shows other processes whether this one has the lock.
   * A paused process or machine may lose its lease just after this check, as it may after a write. A later revision
   * then outdates its writes to the store, and `finish` notices.
   */
  #isKept({ holder, lease_ends_at, waiting }: Found, name: string): boolean {
    const own = this.#own;
    if (own === null || holder !== name || own.holder !== name || own.lease_ends_at !== lease_ends_at) return false;
    return this.#monotonic() - own.since < (waiting === null ? idleMilliseconds : busyMilliseconds);
  }

  /** The lease of a process that has ended, or that has not renewed it for its whole length; null if neither. */
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
   * Renews the lease, also if it has expired but no other process has taken it.
   * @returns the name under which this process holds it; null if another process has taken it
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
