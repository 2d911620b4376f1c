import type { Clock, Logger, Position, RecordsStore, StoreLook } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { AskedRecords } from './asked-records.js';
import { Completeness } from './completeness.js';
import { Continuity } from './continuity.js';
import { EvictionGuard } from './eviction-guard.js';
import { notePublished, noteServers, readHistory } from './history.js';
import type { History } from './history.js';
import { Lease, type LeaseOptions } from './lease.js';
import { isWaiting, oldestChanges, removeChanges } from './outbox.js';
import { OwnStore } from './own-store.js';
import { isMeta, Rebuild } from './rebuild.js';
import { RecordsWriter } from './records-writer.js';

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
/** Between two pages of a search for missing records: it must not hold changes up. */
const searchPauseMilliseconds = 20;

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
  readonly #asked: AskedRecords;
  readonly #completeness: Completeness;
  readonly #writer: RecordsWriter;
  readonly #rebuilding: Rebuild;
  readonly #monotonic: () => number;
  #isHolder = false;
  /** The epoch of the store in which this process has begun to write. */
  #begunIn: number | null = null;
  #settledIn: number | null = null;
  #hasReachedStore = false;
  /** The wait for gateways that may have been forgotten, on the monotonic clock. */
  #opening: { readonly generation: string; readonly at: number } | null = null;

  constructor(options: ProjectionOptions) {
    this.#options = options;
    this.#monotonic = options.monotonic ?? (() => performance.now());
    this.lease = new Lease(options);
    this.eviction = new EvictionGuard(options.store);
    this.#own = new OwnStore({ ...options, mayGoOn: () => this.#mayGoOn() });
    this.#continuity = new Continuity(options);
    this.#writer = new RecordsWriter({ ...options, lease: this.lease });
    const parts = { ...options, lease: this.lease, writer: this.#writer };
    this.#asked = new AskedRecords(parts);
    this.#completeness = new Completeness({ ...parts, eviction: this.eviction });
    this.#rebuilding = new Rebuild({
      ...{ ...parts, mayGoOn: () => this.#mayGoOn() },
      answerAsks: async () => (await this.#asked.answer({ isFilling: true })) !== null,
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

  /** Whether it is known that no record is missing in the store. */
  get isComplete(): boolean {
    return this.#completeness.holds(this.#settledIn);
  }

  /** Whether the store could be looked at when that was last tried. */
  get hasReachedStore(): boolean {
    return this.#hasReachedStore;
  }

  /** In how many milliseconds there will be something to do without a change; null where there will not. */
  get dueIn(): number | null {
    if (this.#settledIn !== null && !this.isComplete) return searchPauseMilliseconds;
    return this.#opening === null ? null : Math.max(0, this.#opening.at - this.#monotonic());
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
    if (!(await this.lease.take())) {
      this.#isHolder = false;
      this.#opening = null;
      this.#unsettle();
      return;
    }
    // What was seen before the lease was taken may have been changed by its former holder.
    const look = this.#isHolder ? before : await store.look();
    this.#isHolder = true;
    if (look.servers.length === 0)
      throw new Error('Redis does not tell its run id: allow the registry INFO (ACL: +info)');
    const history = await readHistory(database);
    // Before anything is written: a registry that is wrong here must not get into the way of the right one.
    if (look.meta !== null && !(await this.#own.require(look.meta, history))) return;
    if (this.#begunIn !== look.epoch) await store.begin();
    this.#begunIn = look.epoch;
    this.eviction.written();
    if (await this.#continuity.holds(look, history)) await this.#goOn(look, history);
    else if (!(await this.#rebuild(look, history))) return;
    this.#settledIn = look.epoch;
    this.#continuity.settled(await readHistory(database));
    if (!(await this.#drain()) || !(await this.#answerAsks())) return;
    if (!(await this.#completeness.goOn(look.epoch))) this.#unsettle();
  }

  /** @returns whether this process still projects */
  async #answerAsks(): Promise<boolean> {
    const wasMissing = await this.#asked.answer({ isFilling: false });
    if (wasMissing === true) this.#completeness.doubt();
    return wasMissing !== null;
  }

  /** Nothing was lost. Another process may have ended while it waited for gateways: then the wait begins anew. */
  async #goOn({ meta, replicas }: StoreLook, { generation, isOpen, servers, published }: History): Promise<void> {
    const { store, longestLifetimeMilliseconds } = this.#options;
    // Another replica can take the server's place: gateways have to know how many.
    // One of an earlier release answers no gateway that asks for a record.
    if (isMeta(meta) && published !== null && (replicas > (meta.replicas ?? 0) || meta.asks !== true)) {
      await store.complete({ ...meta, replicas: Math.max(replicas, meta.replicas ?? 0), asks: true }, published);
    }
    if (isOpen) this.#opening = null;
    else if (this.#opening?.generation !== generation) {
      const opensAt = this.#wait(generation, longestLifetimeMilliseconds);
      await this.lease.finish(nothing, (transaction) => noteServers(transaction, { servers: servers ?? [], opensAt }));
    } else if (this.#monotonic() >= this.#opening.at) {
      const opened = { servers: servers ?? [], opensAt: null };
      if (await this.lease.finish(nothing, (transaction) => noteServers(transaction, opened))) this.#opening = null;
    }
  }

  /** Begins to wait for gateways that may have been forgotten. @returns until when, in milliseconds since 1970; null: it need not */
  #wait(generation: string, milliseconds: number): number | null {
    this.#opening = milliseconds === 0 ? null : { generation, at: this.#monotonic() + milliseconds };
    return milliseconds === 0 ? null : this.#options.clock.now() + milliseconds;
  }

  /** @returns whether this process still projects */
  async #drain(): Promise<boolean> {
    const { database, store, session, onPublished } = this.#options;
    let { published } = await readHistory(database);
    for (let isFirst = true; ; isFirst = false) {
      if (!isFirst && !(await this.#mayGoOn())) return false;
      const batch = await oldestChanges(database);
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
      if (!(await this.#answerAsks())) return false;
      // Changes may come without end: the next run ends the wait for forgotten gateways.
      if (this.dueIn === 0) return true;
    }
  }

  /** @returns whether this process still projects */
  async #rebuild(look: StoreLook, before: History): Promise<boolean> {
    this.#settledIn = null;
    const loss = await this.#continuity.assess(look, before);
    const { evictedKeys } = this.eviction;
    const rebuilt = await this.#rebuilding.run(look, { before, loss });
    if (rebuilt === null) return false;
    const { generation, written } = rebuilt;
    const opensAt = this.#wait(generation, loss.waitMilliseconds);
    this.#completeness.written(look.epoch, evictedKeys);
    return this.lease.finish(nothing, async (transaction) => {
      await notePublished(transaction, written);
      await noteServers(transaction, { servers: look.servers, opensAt });
    });
  }

  async #mayGoOn(): Promise<boolean> {
    const { shouldStop = () => false } = this.#options;
    return !shouldStop() && (await this.lease.take());
  }

  #unsettle(): void {
    this.#settledIn = null;
    this.#begunIn = null;
  }
}
