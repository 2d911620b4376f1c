import type { MetaRecord } from '../../gateway/records.js';
import type { Clock, Logger, Position, RecordsStore, StoreSnapshot } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { RequestedRecords } from './asked-records.js';
import { Continuity, OwnStore } from './continuity.js';
import { type History, notePublished, noteSealed, noteServers, readHistory } from './history.js';
import { Lease, type LeaseOptions } from './lease.js';
import { Opening } from './opening.js';
import { isWaiting, oldestChanges, RecordsWriter, removeChanges } from './outbox.js';
import { Rebuild } from './rebuild.js';
import { RecordRepairs, type RepairCounts } from './record-repairs.js';
import { EvictionGuard } from './repair-pause.js';
import { Sealing } from './sealing.js';

/** Dependencies of Projection. */
export interface ProjectionOptions extends LeaseOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly clock: Clock;
  /** Creates the id of a new generation (a complete rewrite of the store). */
  readonly newGeneration: () => string;
  /** The maximum time for which a gateway is allowed to use its cached records, plus one second, in milliseconds. */
  readonly longestLifetimeMilliseconds: number;
  /**
   * Resolves when gateways have had time to report inactive records (whose status denies requests). Default: resolves
   * at once.
   */
  readonly untilReported?: () => Promise<void>;
  /** Called between two batches; if it returns true, `run` stops after the current batch. */
  readonly shouldStop?: () => boolean;
  readonly logger?: Logger | undefined;
  /** Called after each change that was published (announced to gateways). */
  readonly onPublished?: () => void;
}

const nothing = { names: [], revision: 0 };

/**
 * Writes the database's records to the store. The outbox (table of changes to write) keeps a change until the change is
 * published (announced to gateways), so a crash loses nothing. If the store is not in its recorded state, all records
 * are rewritten (a new generation of the store).
 */
export class Projection {
  readonly #options: ProjectionOptions;
  readonly lease: Lease;
  readonly eviction: EvictionGuard;
  readonly #own: OwnStore;
  readonly #continuity: Continuity;
  readonly #writer: RecordsWriter;
  readonly #rebuilding: Rebuild;
  readonly #repairs: RecordRepairs;
  readonly #sealing: Sealing;
  readonly #asked: RequestedRecords;
  readonly #opening: Opening;
  #isHolder = false;
  /**
   * The epoch of the connection in which this process began to write; null before that. The epoch is a number that
   * changes when the connection could lead to another Redis server.
   */
  #begunIn: number | null = null;
  #settledIn: number | null = null;
  #hasReachedStore = false;

  constructor(options: ProjectionOptions) {
    this.#options = options;
    this.lease = new Lease(options);
    this.eviction = new EvictionGuard(options.store);
    this.#own = new OwnStore({ ...options, mayGoOn: () => this.#mayGoOn() });
    this.#continuity = new Continuity(options);
    this.#writer = new RecordsWriter({ ...options, lease: this.lease });
    const parts = { ...options, lease: this.lease, writer: this.#writer };
    const [monotonic, eviction] = [options.monotonic ?? (() => performance.now()), this.eviction];
    this.#opening = new Opening({ ...parts, monotonic });
    this.#asked = new RequestedRecords(parts);
    this.#repairs = new RecordRepairs({ ...parts, monotonic, eviction, isContinuous: () => this.#isContinuous() });
    this.#sealing = new Sealing({
      ...parts,
      drain: async () => (await this.#mayGoOn()) && (await this.#drain(this.#begunIn)),
    });
    this.#rebuilding = new Rebuild({
      ...{ ...parts, mayGoOn: () => this.#mayGoOn(), replyToAsks: () => this.#asked.replyWhileFilling() },
      onBegun: (generation, loss) => {
        this.#continuity.begun(generation, loss);
      },
    });
  }

  /** Whether all changes up to this revision (number of a change) are written to the store. */
  async hasProjected(revision: number): Promise<boolean> {
    return !(await isWaiting(this.#options.database, revision));
  }

  /**
   * The epoch (a number of the connection). Null unless this process holds the lease (the right to write to the store)
   * and found store and database consistent. The epoch changes when the connection could lead to another Redis server.
   */
  get settledIn(): number | null {
    return this.#settledIn;
  }

  /** Whether the last attempt to read the store's state succeeded. */
  get hasReachedStore(): boolean {
    return this.#hasReachedStore;
  }

  /**
   * Milliseconds until the wait for unknown gateways (see `Opening`) is over; null without such a wait. When it is
   * over, `run` must be called.
   */
  get dueIn(): number | null {
    return this.#opening.dueIn;
  }

  /** Whether this process has verified that the store contains every record. */
  get isComplete(): boolean {
    return this.#settledIn !== null && this.#repairs.isComplete;
  }

  /** Counts of the records that were compared with the database and repaired. */
  get repairCounts(): RepairCounts {
    return this.#repairs.counts;
  }

  /**
   * Writes all pending changes to the store, or every record if the store is not in its recorded state. Writes nothing
   * while another process holds the lease (the right to write to the store).
   */
  async run(): Promise<void> {
    try {
      await this.#run();
    } catch (error) {
      this.#unsettle();
      throw error;
    }
  }

  /** Releases the lease (the right to write to the store), so that another process can take it. */
  async end(): Promise<void> {
    this.#unsettle();
    await this.lease.giveUp();
  }

  async #run(): Promise<void> {
    const { database, store } = this.#options;
    // Checks the store before taking the lease (the right to write to it). A registry without access to Redis must not
    // block a registry that has access.
    this.#hasReachedStore = false;
    // Checks the memory policy first, because `snapshot()` fails on a full Redis.
    await this.eviction.check();
    const before = await store.snapshot();
    this.#hasReachedStore = true;
    // Checks the secret for sealing (authenticating) records before taking the lease (the right to write to the store).
    // A registry with a wrong secret must not block a registry with the right secret.
    this.#sealing.require(before, await readHistory(database));
    if (!(await this.lease.take())) {
      this.#isHolder = false;
      this.#opening.leave();
      this.#unsettle();
      return;
    }
    // If this process has just taken the lease (the right to write), reads the store again: the previous holder might
    // have changed it since the first snapshot.
    const snapshot = this.#isHolder ? before : await store.snapshot();
    this.#isHolder = true;
    if (snapshot.servers.length === 0)
      throw new Error(
        'Redis does not report its run id: allow the Redis user of the registry the command INFO (ACL: +info)',
      );
    const history = await readHistory(database);
    this.#sealing.require(snapshot, history);
    const holds = await this.#holds(snapshot, history);
    const credible = this.#sealing.credible(snapshot, history);
    // Checks before the first write that the store belongs to this database. A registry with the wrong database must
    // not overwrite the store of another registry.
    if (!holds && snapshot.meta !== null && !(await this.#own.require(credible.meta ?? { generation: null }, history)))
      return;
    if (this.#begunIn !== snapshot.epoch) await store.begin();
    this.#begunIn = snapshot.epoch;
    this.eviction.written();
    const meta = holds ? await this.#goOn(snapshot, history) : null;
    if (holds ? meta === null : !(await this.#rebuild(credible, history))) return;
    this.#settledIn = snapshot.epoch;
    this.#continuity.settled(await readHistory(database));
    if (meta === null || (await this.#sealing.run(meta, history))) await this.#drain(snapshot.epoch);
  }

  /**
   * Continues with a store that is in its recorded state.
   * @returns the meta record (the store's description); null if another process now writes to the store
   */
  async #goOn(snapshot: StoreSnapshot, history: History): Promise<MetaRecord | null> {
    if (!(await this.#sealing.begin(history))) return null;
    const meta = await this.#sealing.restore(snapshot, history);
    await this.#opening.goOn(history);
    return meta;
  }

  /**
   * Handles gateways' requests for records, repairs records, and writes and publishes all pending changes.
   * @returns false if this function stopped early: on `shouldStop`, if another process now writes to the store, or if
   *   the store is no longer in its recorded state
   */
  async #drain(epoch: number | null): Promise<boolean> {
    const { database, store, session, onPublished } = this.#options;
    let { published } = await readHistory(database);
    for (let isFirst = true; ; isFirst = false) {
      if (!isFirst && !(await this.#mayGoOn())) return false;
      const asked = await this.#asked.reply((entries) => this.#repairs.restore(entries, epoch));
      const batch = await oldestChanges(database);
      // Repairs records before it writes changes. Otherwise the writer would treat a forged record with a later
      // revision (number of a change) as a change that the database has lost.
      const step = asked === 'lost' ? asked : await this.#repairs.step(epoch, batch === null);
      if (step === 'lost') return this.#unsettle();
      if (batch === null && (step === 'more' || asked === 'more')) continue;
      if (batch === null) return true;
      await this.#writer.write(batch);
      // Outbox rows (changes to write) that `Lease.finish` has put back have older revisions. Publishes the newest
      // revision again in this case, because the published revision must never decrease.
      const position: Position = published !== null && published.revision > batch.revision ? published : batch;
      await store.publish(position);
      const isKept = await this.lease.finish(batch, async (transaction) => {
        await removeChanges(transaction, batch.revision);
        await notePublished(transaction, position);
      });
      if (!isKept) return false;
      published = position;
      session.notify(); // the process that made the change waits for this notification
      onPublished?.();
      // If the wait for unknown gateways (see `Opening`) is over, returns early, because only the next run ends the
      // wait. Otherwise a steady flow of changes would prolong it.
      if (this.dueIn === 0) return true;
    }
  }

  /**
   * Rewrites all records (a new generation).
   * @returns false if the rewrite was stopped or another process now writes
   */
  async #rebuild(snapshot: StoreSnapshot, before: History): Promise<boolean> {
    this.#settledIn = null;
    const loss = await this.#continuity.assess(snapshot, before);
    const rebuilt = await this.#rebuilding.run(snapshot, { before, loss });
    if (rebuilt === null) return false;
    const { generation, written } = rebuilt;
    const opensAt = this.#opening.begin(generation, loss.waitMilliseconds);
    return this.lease.finish(nothing, async (transaction) => {
      await notePublished(transaction, written);
      await noteServers(transaction, { servers: snapshot.servers, opensAt });
      await noteSealed(transaction, this.#options.store.sealIds.slice(0, 1));
    });
  }

  #holds(snapshot: StoreSnapshot, history: History): Promise<boolean> {
    return this.#continuity.holds(snapshot, history, this.#sealing.isForged(snapshot, history));
  }

  async #isContinuous(): Promise<boolean> {
    const { database, store } = this.#options;
    const snapshot = await store.snapshot();
    return snapshot.epoch === this.#begunIn && this.#holds(snapshot, await readHistory(database));
  }

  async #mayGoOn(): Promise<boolean> {
    const { shouldStop = () => false } = this.#options;
    return !shouldStop() && (await this.lease.take());
  }

  #unsettle(): false {
    this.#repairs.rest();
    [this.#settledIn, this.#begunIn] = [null, null];
    return false;
  }
}
