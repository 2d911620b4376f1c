import type { MetaRecord } from '../../gateway/records.js';
import type { Clock, Logger, Position, RecordsStore, StoreSnapshot } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { RequestedRecords } from './asked-records.js';
import { Continuity, OwnStore } from './continuity.js';
import { type History, notePublished, noteSealed, noteServers, readHistory } from './history.js';
import { Lease, type LeaseOptions, noRecords } from './lease.js';
import { Opening } from './opening.js';
import { isWritten, oldestChanges, RecordsWriter, removeChanges } from './outbox.js';
import { Rebuild } from './rebuild.js';
import { RecordRepairs, type RepairCounts } from './record-repairs.js';
import { EvictionGuard } from './repair-pause.js';
import { Sealing } from './sealing.js';

/** Dependencies of Projection. */
export interface ProjectionOptions extends LeaseOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly clock: Clock;
  /** Creates the id of a new generation. Each complete rewrite of the store begins a new generation. */
  readonly newGeneration: () => string;
  /** The maximum time for which a gateway is allowed to use its cached records, plus one second, in milliseconds. */
  readonly longestLifetimeMilliseconds: number;
  /**
   * Resolves when gateways have had time to report inactive records, which are records whose status denies requests.
   * Default: resolves at once.
   */
  readonly untilReported?: () => Promise<void>;
  /** Called between two batches; if it returns true, `run` starts no further batch. */
  readonly shouldStop?: () => boolean;
  readonly logger?: Logger | undefined;
  /** Called after each batch of changes that was published (announced to gateways). */
  readonly onPublished?: () => void;
}

/** How long `run` writes before it verifies again that the Redis server is still the master, in milliseconds. */
const verifiedMilliseconds = 1_000;

/**
 * Writes the database's records to the store. The outbox is the table of changes to write. A change stays in the outbox
 * until it is published (announced to gateways), so a crash loses no change. If the store is not in the state that the
 * database has recorded, all records are rewritten as a new generation.
 */
export class Projection {
  readonly #options: ProjectionOptions;
  readonly #monotonic: () => number;
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
  /** The `term` (a number) that the lease had when this process last compared store and database. */
  #term = 0;
  /**
   * The epoch is a number that changes when the connection might have switched to another Redis server. This field is
   * the epoch in which this process began to write to the store; null while this process does not write.
   */
  #begunIn: number | null = null;
  #settledIn: number | null = null;
  /** The epoch of the snapshot that `run` compares with the database, and when that epoch was last verified. */
  #verified = { epoch: NaN, at: -Infinity };
  #hasReachedStore = false;

  constructor(options: ProjectionOptions) {
    this.#options = options;
    this.lease = new Lease(options);
    this.eviction = new EvictionGuard(options.store);
    this.#own = new OwnStore({ ...options, mayGoOn: () => this.#mayGoOn() });
    this.#continuity = new Continuity(options);
    this.#writer = new RecordsWriter({ ...options, lease: this.lease });
    const parts = { ...options, lease: this.lease, writer: this.#writer };
    this.#monotonic = options.monotonic ?? (() => performance.now());
    const [monotonic, eviction] = [this.#monotonic, this.eviction];
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
  hasProjected(revision: number): Promise<boolean> {
    return isWritten(this.#options.database, revision);
  }

  /**
   * The epoch in which this process found the store consistent with the database. The epoch is a number that changes
   * when the connection might have switched to another Redis server. Null if this process does not hold the lease (the
   * right to write to the store), or has not found the store consistent.
   */
  get settledIn(): number | null {
    return this.#settledIn;
  }

  /** Whether the last attempt to read the store's state succeeded. */
  get hasReachedStore(): boolean {
    return this.#hasReachedStore;
  }

  /**
   * Milliseconds until the end of the wait in `Opening` for gateways that the database might not list; null without
   * this wait. Call `run` when the wait ends.
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
    // Records are sealed, that is, authenticated with a secret. Checks the secret before taking the lease: a registry
    // with a wrong secret must not block a registry with the right secret.
    this.#sealing.require(before, await readHistory(database));
    if (!(await this.lease.take())) {
      this.#opening.leave();
      this.#unsettle();
      return;
    }
    // If this process has just taken the lease, reads the store again. The previous holder of the lease might have
    // changed the store since the first snapshot.
    const isNewTerm = this.#term !== this.lease.term;
    const snapshot = isNewTerm ? await store.snapshot() : before;
    if (isNewTerm) this.#continuity.left();
    this.#term = this.lease.term;
    this.#verified = { epoch: snapshot.epoch, at: this.#monotonic() };
    if (snapshot.servers.length === 0)
      throw new Error(
        'Redis does not report its run id: allow the Redis user of the registry to run INFO (ACL: +info)',
      );
    const history = await readHistory(database);
    this.#sealing.require(snapshot, history);
    const holds = await this.#holds(snapshot, history);
    const credible = this.#sealing.credible(snapshot, history);
    // Checks before the first write that the store belongs to this database. A registry with the wrong database must
    // not overwrite the store of another registry.
    if (!holds && snapshot.meta !== null && !(await this.#own.require(credible.meta ?? { generation: null }, history)))
      return;
    if (this.#begunIn !== snapshot.epoch) {
      await store.begin();
      // The connection could have been reopened since the snapshot, for example after a failover during a slow query of
      // the database. In that case, `begin` made this process the writer of a server that was not compared and could
      // lack a revocation.
      if ((await store.snapshot()).epoch !== snapshot.epoch)
        throw new Error('Redis was reconnected while its records were compared with the database: comparing again');
    }
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
      // Repairs records before writing changes. Otherwise the writer would treat a forged record with a later revision
      // as a change that the database has lost.
      const step = asked === 'lost' ? asked : await this.#repairs.step(epoch, batch === null);
      if (step === 'lost') return this.#unsettle();
      if (batch === null && (step === 'more' || asked === 'more')) continue;
      if (batch === null) return true;
      await this.#writer.write(batch);
      // `Lease.finish` can put changes back into the outbox that are older than the published one. After a batch of
      // older changes, publishes the same revision again, because the published revision must never decrease.
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
      // If the time of the wait in `Opening` has passed, returns early, because only the next run ends that wait.
      // Otherwise a steady flow of changes would prolong the wait.
      if (this.dueIn === 0) return true;
    }
  }

  /**
   * Rewrites all records as a new generation.
   * @returns false if the rewrite was stopped, or if another process now writes to the store
   */
  async #rebuild(snapshot: StoreSnapshot, before: History): Promise<boolean> {
    this.#settledIn = null;
    const loss = await this.#continuity.assess(snapshot, before);
    const rebuilt = await this.#rebuilding.run(snapshot, { before, loss });
    if (rebuilt === null) return false;
    const { generation, written } = rebuilt;
    const opensAt = this.#opening.begin(generation, loss.waitMilliseconds);
    return this.lease.finish(noRecords, async (transaction) => {
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

  /**
   * Whether `run` can write another batch. Reads the store's state again once a second: with Sentinel, only this read
   * checks that the server is still the master. Otherwise a long `run` could confirm changes on a replaced master.
   * @throws Error if no majority of the sentinels confirms the master
   */
  async #mayGoOn(): Promise<boolean> {
    const { store, shouldStop = () => false } = this.#options;
    if (shouldStop() || !(await this.lease.take())) return false;
    const now = this.#monotonic();
    if (now - this.#verified.at < verifiedMilliseconds) return true;
    if ((await store.snapshot()).epoch !== this.#verified.epoch) return this.#unsettle();
    this.#verified.at = now;
    return true;
  }

  #unsettle(): false {
    this.#repairs.rest();
    [this.#settledIn, this.#begunIn] = [null, null];
    return false;
  }
}
