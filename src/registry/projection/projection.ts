import type { MetaRecord } from '../../gateway/records.js';
import type { Clock, Logger, Position, RecordsStore, StoreLook } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { AskedRecords } from './asked-records.js';
import { Continuity, OwnStore } from './continuity.js';
import { type History, notePublished, noteSealed, noteServers, readHistory } from './history.js';
import { Lease, type LeaseOptions } from './lease.js';
import { Opening } from './opening.js';
import { isWaiting, oldestChanges, RecordsWriter, removeChanges } from './outbox.js';
import { Rebuild } from './rebuild.js';
import { RecordRepairs, type RepairFigures } from './record-repairs.js';
import { EvictionGuard } from './repair-pause.js';
import { Sealing } from './sealing.js';

/** What a projection works with. */
export interface ProjectionOptions extends LeaseOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly clock: Clock;
  /** A name for a new generation. */
  readonly newGeneration: () => string;
  /** How long a gateway may use what it holds at most, and a second. */
  readonly longestLifetimeMilliseconds: number;
  /** As in `ContinuityOptions`. */
  readonly untilReported?: () => Promise<void>;
  /** Asked between two batches. */
  readonly shouldStop?: () => boolean;
  readonly logger?: Logger | undefined;
  /** Told when a change was published. */
  readonly onPublished?: () => void;
}

const nothing = { names: [], revision: 0 };

/**
 * Brings the store into the state of the database. Each step can be done again, so an end at any point does no harm: the
 * outbox keeps a change until its records are written and its number is published. Where the store is not what the database
 * says that it was left as, a new generation begins, and everything is written anew.
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
  readonly #asked: AskedRecords;
  readonly #opening: Opening;
  #isHolder = false;
  /** The epoch of the store in which this process has begun to write. */
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
    this.#asked = new AskedRecords(parts);
    this.#repairs = new RecordRepairs({ ...parts, monotonic, eviction, isContinuous: () => this.#isContinuous() });
    this.#sealing = new Sealing({
      ...parts,
      drain: async () => (await this.#mayGoOn()) && (await this.#drain(this.#begunIn)),
    });
    this.#rebuilding = new Rebuild({
      ...{ ...parts, mayGoOn: () => this.#mayGoOn(), answerAsks: () => this.#asked.answerWhileFilling() },
      onBegun: (generation, loss) => {
        this.#continuity.begun(generation, loss);
      },
    });
  }

  /** Whether every record of this revision, and of those before it, is in the store. */
  async hasProjected(revision: number): Promise<boolean> {
    return !(await isWaiting(this.#options.database, revision));
  }

  /** The epoch in which this process projects, and has found the store to be what the database says; null while there is none. */
  get settledIn(): number | null {
    return this.#settledIn;
  }

  /** Whether the store could be looked at when that was last tried. */
  get hasReachedStore(): boolean {
    return this.#hasReachedStore;
  }

  /** In how many milliseconds there will be something to do without a change; null where there will not. */
  get dueIn(): number | null {
    return this.#opening.dueIn;
  }

  /** Whether it is known that no record is missing in the store. */
  get isComplete(): boolean {
    return this.#settledIn !== null && this.#repairs.isComplete;
  }

  /** What was compared with the database, and repaired. */
  get repairFigures(): RepairFigures {
    return this.#repairs.figures;
  }

  /** Projects everything that is waiting, and the whole database where the store does not hold it. */
  async run(): Promise<void> {
    try {
      await this.#run();
    } catch (error) {
      this.#unsettle();
      throw error;
    }
  }

  /** Lets another process go on. */
  async end(): Promise<void> {
    this.#unsettle();
    await this.lease.giveUp();
  }

  async #run(): Promise<void> {
    const { database, store } = this.#options;
    // Whoever cannot reach the store must not keep the lease from those who can.
    this.#hasReachedStore = false;
    // First: a server that is full refuses to be looked at.
    await this.eviction.look();
    const before = await store.look();
    this.#hasReachedStore = true;
    // Nor whoever cannot seal it.
    this.#sealing.require(before, await readHistory(database));
    if (!(await this.lease.take())) {
      this.#isHolder = false;
      this.#opening.leave();
      this.#unsettle();
      return;
    }
    // What was seen before the lease was taken may have been changed by its former holder.
    const look = this.#isHolder ? before : await store.look();
    this.#isHolder = true;
    if (look.servers.length === 0)
      throw new Error('Redis does not tell its run id: allow the registry INFO (ACL: +info)');
    const history = await readHistory(database);
    this.#sealing.require(look, history);
    const holds = await this.#holds(look, history);
    const credible = this.#sealing.credible(look, history);
    // Before anything is written: a registry that is wrong here must not get into the way of the right one.
    if (!holds && look.meta !== null && !(await this.#own.require(credible.meta ?? { generation: null }, history)))
      return;
    if (this.#begunIn !== look.epoch) await store.begin();
    this.#begunIn = look.epoch;
    this.eviction.written();
    const meta = holds ? await this.#goOn(look, history) : null;
    if (holds ? meta === null : !(await this.#rebuild(credible, history))) return;
    this.#settledIn = look.epoch;
    this.#continuity.settled(await readHistory(database));
    if (meta === null || (await this.#sealing.run(meta, history))) await this.#drain(look.epoch);
  }

  /** Nothing was lost. @returns the meta record; null where this process projects no more */
  async #goOn(look: StoreLook, history: History): Promise<MetaRecord | null> {
    if (!(await this.#sealing.begin(history))) return null;
    const meta = await this.#sealing.restore(look, history);
    await this.#opening.goOn(history);
    return meta;
  }

  /** @returns whether this process still projects */
  async #drain(epoch: number | null): Promise<boolean> {
    const { database, store, session, onPublished } = this.#options;
    let { published } = await readHistory(database);
    for (let isFirst = true; ; isFirst = false) {
      if (!isFirst && !(await this.#mayGoOn())) return false;
      const asked = await this.#asked.answer((entries) => this.#repairs.restore(entries, epoch));
      const batch = await oldestChanges(database);
      // Before the changes: a forged record of a later revision would be taken for one of a lost history.
      const step = asked === 'lost' ? asked : await this.#repairs.step(epoch, batch === null);
      if (step === 'lost') return this.#unsettle();
      if (batch === null && (step === 'more' || asked === 'more')) continue;
      if (batch === null) return true;
      await this.#writer.write(batch);
      // What was put back to be written once more has an older number; gateways must see none that goes back.
      const position: Position = published !== null && published.revision > batch.revision ? published : batch;
      await store.publish(position);
      const isKept = await this.lease.finish(batch, async (transaction) => {
        await removeChanges(transaction, batch.revision);
        await notePublished(transaction, position);
      });
      if (!isKept) return false;
      published = position;
      session.tell(); // the process of the change waits for this
      onPublished?.();
      // Changes may come without end: the next run ends the wait for forgotten gateways.
      if (this.dueIn === 0) return true;
    }
  }

  /** @returns whether this process still projects */
  async #rebuild(look: StoreLook, before: History): Promise<boolean> {
    this.#settledIn = null;
    const loss = await this.#continuity.assess(look, before);
    const rebuilt = await this.#rebuilding.run(look, { before, loss });
    if (rebuilt === null) return false;
    const { generation, written } = rebuilt;
    const opensAt = this.#opening.begin(generation, loss.waitMilliseconds);
    return this.lease.finish(nothing, async (transaction) => {
      await notePublished(transaction, written);
      await noteServers(transaction, { servers: look.servers, opensAt });
      await noteSealed(transaction, this.#options.store.sealIds.slice(0, 1));
    });
  }

  #holds(look: StoreLook, history: History): Promise<boolean> {
    return this.#continuity.holds(look, history, this.#sealing.isForged(look, history));
  }

  async #isContinuous(): Promise<boolean> {
    const { database, store } = this.#options;
    const look = await store.look();
    return look.epoch === this.#begunIn && this.#holds(look, await readHistory(database));
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
