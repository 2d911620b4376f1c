import type { DatabaseSession } from '../../database/session.js';
import type { Clock } from '../../gateway/store-ports.js';
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

/** Another registry, which looks once a second, takes over within five seconds after the holder's machine has crashed. */
const leaseMilliseconds = 3_500;
/** The age at which an idle holder prolongs its lease: that of each look. */
const idleMilliseconds = 1_000;
/** The same while changes wait: `finish` prolongs it with them, and an idle holder looks often enough not to come to this age. */
const busyMilliseconds = leaseMilliseconds / 2;
const givenUp = 0;
/** Behind the name of a holder that had the lock of its session. Earlier releases take it for a part of the name. */
const lockedMark = '+lock';

/** The row of the lease, and whether changes wait to be projected. */
interface Found {
  readonly holder: string;
  readonly lease_ends_at: number;
  readonly waiting: number | null;
}

/** A lease as it was found or written, and since when by one's own time. */
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
  /** What this process last wrote, and from when on the others count its length at the earliest. */
  #own: Sighting | null = null;

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.#lockedName = options.holder + lockedMark;
    this.#monotonic = options.monotonic ?? (() => performance.now());
  }

  /** Takes the lease, or makes sure that it is kept, and prolongs it where that is due; false where another process has it. */
  async take(): Promise<boolean> {
    const { database, clock, holder, session } = this.#options;
    // Before the row is read: what it says of a holder with the lock is then about one that had it earlier.
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
        const free = [it('holder', 'in', this.#ownNames), it('lease_ends_at', '=', givenUp)];
        if (over === null) return it.or(free);
        // As it was found: it may have been prolonged since, or taken by a third.
        return it.or([...free, it.and([it('holder', '=', over.holder), it('lease_ends_at', '=', over.lease_ends_at)])]);
      })
      .executeTakeFirstOrThrow();
    if (numUpdatedRows > 0n) {
      this.#own = { ...lease, since };
      return true;
    }
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

  /** The same where nothing is left to do: while nobody can have taken the lease since it was last written, that is only read. */
  async keep(written: { readonly names: readonly string[]; readonly revision: number }): Promise<boolean> {
    const own = this.#own;
    if (own !== null && this.#isKept(await this.#read(), own.holder)) return true;
    return this.finish(written, () => Promise.resolve());
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
   * Whether the lease is as this process last wrote it, lately: that no other process has taken it is then as good as a
   * write, which would be a flush to the disk before and after each change. Nobody takes it before its whole length is over,
   * which is at least as long again. The name has to be right: a lock that was lost is no longer a reason to take the lease
   * at once, and one that was got is. A process, or a machine, that is paused may find its lease taken just after this, as it may
   * after a write: what it then writes to the store is outdated by the later revision, and `finish` notices.
   */
  #isKept({ holder, lease_ends_at, waiting }: Found, name: string): boolean {
    const own = this.#own;
    if (own === null || holder !== name || own.holder !== name || own.lease_ends_at !== lease_ends_at) return false;
    return this.#monotonic() - own.since < (waiting === null ? idleMilliseconds : busyMilliseconds);
  }

  /** The lease of another process that has ended, or that has been as it is for its whole length; null where there is none. */
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
   * An expired lease that nobody else has taken is kept; one that another process has had in between is not.
   * @returns the name under which it is kept
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
