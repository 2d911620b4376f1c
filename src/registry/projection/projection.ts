import type { Clock, RecordsStore } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { currentRecords } from './current-records.js';
import { continueAfter, readHistory } from './history.js';
import { Lease, type LeaseOptions } from './lease.js';
import { isWaiting, oldestChanges, oldestWaiting, removeChanges } from './outbox.js';
import { OwnStore } from './own-store.js';
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
  readonly #own: OwnStore;
  /** The highest revision that this process has published, or found in the store. */
  #published = 0;
  #isContinued = false;
  /** Whether the store lacks changes that gateways know of: by its old revision they see that it does. */
  #isBehind = false;

  constructor(options: ProjectionOptions) {
    this.#options = options;
    this.#lease = new Lease(options);
    this.#own = new OwnStore({ ...options, mayGoOn: () => this.#mayGoOn() });
  }

  /** Whether every record of this revision, and of those before it, is in the store. */
  async hasProjected(revision: number): Promise<boolean> {
    return !(await isWaiting(this.#options.database, revision));
  }

  /** Projects everything that is waiting, and the whole database where the store does not hold it. */
  async run(): Promise<void> {
    const { database, store } = this.#options;
    // Whoever cannot reach the store must not keep the lease from those who can.
    const before = await store.readMeta();
    if (!(await this.#lease.take())) return;
    // Before anything is written: a registry that is wrong here must not get into the way of the right one.
    if (before !== null && !(await this.#own.require(before))) return;
    const keepsAll = await store.begin();
    const meta = await store.readMeta();
    if (meta !== null && meta.generation !== before?.generation) {
      throw new Error('another registry writes to the store; it is looked at anew');
    }
    // Before the history: a change is committed before it is published, so a store that is ahead knows what the database lost.
    const named = await store.readRevision();
    this.#published = Math.max(this.#published, named);
    const isBehind = (await readHistory(database)).revision < this.#published;
    if (!this.#isContinued || (meta?.generation ?? null) === null || isBehind) await this.#continueHistory();
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
    const { database, store, session } = this.#options;
    for (;;) {
      if (!(await this.#mayGoOn())) return false;
      const batch = await oldestChanges(database);
      if (batch === null) return true;
      const stayed = await store.write(await currentRecords(database, batch.names), batch.revision);
      await this.#replaceStrange(stayed, batch.names);
      await this.#publish(batch.revision);
      if (!(await this.#lease.finish(batch, (transaction) => removeChanges(transaction, batch.revision)))) return false;
      session.tell(); // the process of the change waits for this
    }
  }

  /**
   * Writes every record, then removes what the database does not know, then says that the store is complete. Nothing that
   * is valid is missing meanwhile, and changes are not held up: they are projected between two pages.
   */
  async #rebuild({ generation, revision }: { generation: string; revision: number }): Promise<boolean> {
    const { database, store, clock } = this.#options;
    for await (const entries of storedPages(database)) {
      const names = entries.map(({ name }) => name);
      await this.#replaceStrange(await store.rewrite(entries, revision), names);
      if (!(await this.#keep(names, revision))) return false;
    }
    for await (const { unknown: names } of strangeNames(database, store)) {
      const gone = names.map((name) => ({ name, value: null }));
      if (gone.length > 0) await this.#replaceStrange(await store.rewrite(gone, revision), names);
      if (!(await this.#keep(names, revision))) return false;
    }
    this.#isBehind = false;
    await this.#publish(revision);
    const projectedAt = new Date(clock.now()).toISOString();
    await store.writeMeta({ version: 1, generation, projectedAt }, this.#published);
    return true;
  }

  /**
   * Sees to records that stayed because what they name is later than what was written. They may have been changed meanwhile; or be
   * of a history that was lost, under a number that this one has come to by now, or has not: else they would stay for good.
   * @param stayed the highest revision of them
   * @throws Error where this database has not come to it, and begins a new history; the next pass writes everything anew
   */
  async #replaceStrange(stayed: number, names: readonly string[]): Promise<void> {
    const { database, store, newGeneration } = this.#options;
    for (let highest = stayed; highest > 0;) {
      if (await continueAfter(database, highest, newGeneration())) {
        throw new Error(
          `the store has a record of revision ${highest}, which the database has not come to; all is written anew`,
        );
      }
      const { revision } = await readHistory(database);
      highest = await store.rewrite(await currentRecords(database, names), revision);
    }
  }

  async #mayGoOn(): Promise<boolean> {
    const { shouldStop = () => false } = this.#options;
    return !shouldStop() && (await this.#lease.take());
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
