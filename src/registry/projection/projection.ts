import type { Clock, RecordsStore } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { currentRecords } from './current-records.js';
import { continueAfter, readHistory } from './history.js';
import { Lease, type LeaseOptions } from './lease.js';
import { isWaiting, oldestChanges, oldestWaiting, removeChanges } from './outbox.js';
import { requireOwn } from './own-store.js';
import { strangeNames, storedPages } from './pages.js';

/** What a projection works with. */
export interface ProjectionOptions extends LeaseOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly clock: Clock;
  /** A name for a new history. */
  readonly newGeneration: () => string;
  /** Asked between two batches. */
  readonly shouldStop?: () => boolean;
}

/**
 * Brings the store into the state of the database. Each step can be done again, so an end at any point does no harm: the
 * outbox keeps a change until its records are written and its number is published.
 */
export class Projection {
  readonly #options: ProjectionOptions;
  readonly #lease: Lease;
  /** The highest revision that this process has published, or found in the store. */
  #published = 0;
  #isContinued = false;
  /** Whether the store lacks changes that gateways know of: by its old revision they see that it does. */
  #isBehind = false;

  constructor(options: ProjectionOptions) {
    this.#options = options;
    this.#lease = new Lease(options);
  }

  /** Whether every record of this revision, and of those before it, is in the store. */
  async hasProjected(revision: number): Promise<boolean> {
    return !(await isWaiting(this.#options.database, revision));
  }

  /** Projects everything that is waiting, and the whole database where the store does not hold it. */
  async run(): Promise<void> {
    const { database, store } = this.#options;
    // Whoever cannot reach the store must not keep the lease from those who can.
    await store.readMeta();
    if (!(await this.#lease.take())) return;
    const keepsAll = await store.begin();
    const meta = await store.readMeta();
    if (meta !== null) await requireOwn(database, store, meta);
    // Before the history: a change is committed before it is published, so a store that is ahead knows what the database lost.
    const named = await store.readRevision();
    this.#published = Math.max(this.#published, named);
    const isBehind = (await readHistory(database)).revision < this.#published;
    if (!this.#isContinued || meta === null || isBehind) await this.#continueHistory();
    const history = await readHistory(database);
    const isOurs = meta?.generation === history.generation;
    this.#isBehind = await this.#hasLostChanges(named, history.revision);
    const isWhole = isOurs && keepsAll && !this.#isBehind;
    if (!isWhole && !(await this.#rebuild(history))) return;
    await this.#drain();
  }

  /** Lets another process go on. */
  async end(): Promise<void> {
    await this.#lease.giveUp();
  }

  async #continueHistory(): Promise<void> {
    const { database, store, newGeneration } = this.#options;
    const known = Math.max(this.#published, ...(await store.gateways()).map(({ revision }) => revision));
    await continueAfter(database, known, newGeneration());
    this.#isContinued = true;
  }

  /** A replica that was promoted may lack what was written last, a revocation perhaps; then it names an older revision. */
  async #hasLostChanges(named: number, newest: number): Promise<boolean> {
    if (named < this.#published) return true;
    // What has left the outbox was published before, whatever else waits.
    const waiting = await oldestWaiting(this.#options.database);
    return named < (waiting === null ? newest : waiting - 1);
  }

  /** @returns whether this process still projects */
  async #drain(): Promise<boolean> {
    const { database, store, shouldStop = () => false } = this.#options;
    for (;;) {
      if (shouldStop() || !(await this.#lease.take())) return false;
      const batch = await oldestChanges(database);
      if (batch === null) return true;
      await this.#requireKnown(await store.write(await currentRecords(database, batch.names), batch.revision));
      await this.#publish(batch.revision);
      if (!(await this.#lease.finish(batch, (transaction) => removeChanges(transaction, batch.revision)))) return false;
    }
  }

  /**
   * Writes every record, then removes what the database does not know, then says that the store is complete. Nothing that
   * is valid is missing meanwhile, and changes are not held up: they are projected between two pages.
   */
  async #rebuild({ generation, revision }: { generation: string; revision: number }): Promise<boolean> {
    const { database, store, clock } = this.#options;
    for await (const entries of storedPages(database)) {
      await this.#requireKnown(await store.rewrite(entries, revision));
      if (
        !(await this.#keep(
          entries.map(({ name }) => name),
          revision,
        ))
      )
        return false;
    }
    for await (const { unknown: names } of strangeNames(database, store)) {
      const gone = names.map((name) => ({ name, value: null }));
      if (gone.length > 0) await this.#requireKnown(await store.rewrite(gone, revision));
      if (!(await this.#keep(names, revision))) return false;
    }
    this.#isBehind = false;
    await this.#publish(revision);
    const projectedAt = new Date(clock.now()).toISOString();
    await store.writeMeta({ version: 1, generation, projectedAt }, this.#published);
    return true;
  }

  /**
   * Begins a new history where a record of the store was not replaced because it is of a change that this database has not come
   * to: it would never be replaced.
   * @throws Error then; the next pass writes everything anew
   */
  async #requireKnown(stayed: number): Promise<void> {
    const { database, newGeneration } = this.#options;
    if (stayed === 0 || !(await continueAfter(database, stayed, newGeneration()))) return;
    throw new Error(
      `the store has a record of revision ${stayed}, which the database has not come to; all is written anew`,
    );
  }

  async #keep(names: readonly string[], revision: number): Promise<boolean> {
    return (await this.#lease.finish({ names, revision }, () => Promise.resolve())) && (await this.#drain());
  }

  /** A rebuild begins with an older number than those of the changes meanwhile; gateways must see none that goes back. */
  async #publish(revision: number): Promise<void> {
    const newest = Math.max(revision, this.#published);
    if (!this.#isBehind) await this.#options.store.publishRevision(newest);
    this.#published = newest;
  }
}
