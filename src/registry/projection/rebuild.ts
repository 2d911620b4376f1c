import { ulid } from 'ulid';
import type { MetaRecord } from '../../gateway/records.js';
import type { Clock, Logger, Position, RecordsStore, StoredMeta, StoreSnapshot } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { holdBackFromReports, holdBackFromStore, isRestored, noteRestore } from '../restores/restores.js';
import type { Loss } from './continuity.js';
import { beginGeneration, databaseName, type History, laterGeneration, readHistory, generationIn } from './history.js';
import { type Lease, noRecords } from './lease.js';
import { oldestChanges, type RecordsWriter } from './outbox.js';
import { storedPages, unknownStoreNames } from './pages.js';

/** Dependencies of Rebuild. */
export interface RebuildOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly clock: Clock;
  readonly lease: Pick<Lease, 'finish' | 'keep'>;
  readonly writer: RecordsWriter;
  /** Creates the id of a new generation. Each complete rewrite of the store begins a new generation. */
  readonly newGeneration: () => string;
  /** Called between two batches of records; if it returns false, the rewrite of the store stops. */
  readonly mayGoOn: () => Promise<boolean>;
  /** Replies to gateways that request records. Returns false if another process now writes to the store. */
  readonly replyToAsks: () => Promise<boolean>;
  /** Called before the first write, with the id of the new generation. */
  readonly onBegun: (generation: string, loss: Loss) => void;
  readonly logger?: Logger | undefined;
}

/** The result of a completed rebuild. Every record is now in the store. */
export interface Rebuilt {
  readonly generation: string;
  /** The newest change whose records are in the store. */
  readonly written: Position;
}

/**
 * Rewrites the whole store as a new generation: writes each record, deletes unknown records, and finally marks the
 * store as complete. Gateways can read valid records throughout. Changes that are made meanwhile are written at once,
 * but published (announced to gateways) only at the end: gateways assume that the store has the records of all changes
 * up to a published change.
 */
export class Rebuild {
  readonly #options: RebuildOptions;

  constructor(options: RebuildOptions) {
    this.#options = options;
  }

  /** Writes all records. @returns null if the rebuild was stopped, or if another process now writes to the store */
  async run(
    snapshot: StoreSnapshot,
    { before, loss }: { readonly before: History; readonly loss: Loss },
  ): Promise<Rebuilt | null> {
    const { database, store, clock, writer, newGeneration, onBegun, logger } = this.#options;
    const { meta, servers } = snapshot;
    const generation = laterGeneration(newGeneration(), [before.generation, generationIn(meta)]);
    const details = {
      ...{ generation, before: before.generation, inStore: meta?.generation ?? null, servers },
      ...{ revision: before.revision, revisionInStore: snapshot.revision, waitMilliseconds: loss.waitMilliseconds },
    };
    if (store.endsWithProcess || before.published === null) logger?.info(details, 'writing every record to the store');
    else {
      const why = loss.isBehind
        ? 'the database lacks changes that the store or a gateway has'
        : 'the store may have lost records or changes';
      logger?.warn(details, `${why}: rewriting all records of the store`);
    }
    const begun = { generation, revision: loss.known };
    const { lease } = this.#options;
    // Makes both calls in one transaction, because a crash between them would hide the restore: `beginGeneration`
    // raises the database's revision to `loss.known`, so a later comparison of the revisions would find no difference.
    const isKept = await lease.finish(noRecords, async (transaction) => {
      await beginGeneration(transaction, begun);
      if (loss.isUnverified) await noteRestore({ ...this.#options, database: transaction }, loss.isBehind);
    });
    if (!isKept) return null;
    onBegun(generation, loss);
    // An earlier rebuild might have stopped after it raised the database's revision to the store's revision. A
    // comparison of these revisions then no longer shows that the database lacks changes. So records are also held back
    // (restricted) after an interrupted rebuild.
    const isInterrupted = before.published === null && before.revision > 0;
    // Holds back records whose revocation the database has lost. Only the old records in the store and the reports of
    // gateways show a lost revocation, so this happens before the first write replaces the old records. It happens even
    // if a loss is only possible, because the database might have reused the revision of a lost change.
    const canLackChanges = loss.isBehind || loss.isUnverified || isInterrupted;
    if (canLackChanges && !(await this.#holdBack(loss, snapshot.revision))) return null;

    const { revision } = await readHistory(database);
    const progress = { written: { revision, change: ulid(clock.now()) } };
    const common = {
      ...{ generation, database: await databaseName(database), servers: [...servers], asks: store.inbox !== null },
      replicas: Math.max(snapshot.replicas, isMeta(meta) ? (meta.replicas ?? 0) : 0),
    };
    const now = (): string => new Date(clock.now()).toISOString();
    // Marks an empty store as being filled, so that gateways request the records that they need. A store with old
    // records gets no such mark, because gateways can use the old records meanwhile.
    const isEmpty = meta === null || (meta.generation === null && meta.filling !== undefined);
    if (isEmpty) await store.fill?.({ version: 2, filling: true, ...common, projectedAt: now() });
    for await (const entries of storedPages(database)) {
      await writer.rewrite(entries, revision);
      const names = entries.map(({ name }) => name);
      if (!(await this.#goOn(names, revision, progress))) return null;
    }
    for await (const { unknown: names } of unknownStoreNames(database, store)) {
      const gone = names.map((name) => ({ name, value: null }));
      if (gone.length > 0) await writer.rewrite(gone, revision);
      if (!(await this.#goOn(names, revision, progress))) return null;
    }
    const { written } = progress;
    await store.complete({ version: 1, ...common, projectedAt: now() }, written);
    return { generation, written };
  }

  /**
   * Called after each page of records. Checks that this process still holds the lease (the right to write to the
   * store), and writes pending changes.
   * @returns whether to continue
   */
  async #goOn(names: readonly string[], revision: number, progress: { written: Position }): Promise<boolean> {
    const { database, lease, writer, mayGoOn, replyToAsks } = this.#options;
    if (!(await lease.keep({ names, revision }))) return false;
    for (;;) {
      if (!(await mayGoOn()) || !(await replyToAsks())) return false;
      const batch = await oldestChanges(database, progress.written.revision);
      if (batch === null) return true;
      await writer.write(batch);
      progress.written = { revision: batch.revision, change: batch.change };
    }
  }

  /**
   * Restricts records whose revocation the database has lost.
   * @param announced the revision (number) of the newest change that the store has announced to gateways
   * @returns false if the rebuild was stopped meanwhile
   */
  async #holdBack({ isBehind, known }: Loss, announced: number): Promise<boolean> {
    const { mayGoOn, logger } = this.#options;
    // `uncompared` is the highest revision that could stand for different changes in the store and in the database. If
    // an earlier, interrupted rebuild was certain that the database was restored, a change in the outbox has probably
    // reused the announced revision. In that case, `known` would be too high, because it includes unannounced changes.
    // If no rebuild was certain, the change in the outbox can be the announced change itself, which is not yet deleted
    // from the outbox.
    const uncompared = isBehind ? known : (await isRestored(this.#options)) ? announced : 0;
    const ofStore = await holdBackFromStore(this.#options, uncompared, mayGoOn);
    if (ofStore === null) return false;
    const heldBack = ofStore + (await holdBackFromReports(this.#options, uncompared));
    if (isBehind || heldBack > 0)
      logger?.warn(
        { heldBack },
        'the database was restored to an earlier state: it lacks changes that the store or a gateway has. The keys and merchants counted in heldBack stay restricted until an operator removes the restrictions: see "merchant-gateway restores held"',
      );
    return true;
  }
}

/**
 * Whether the meta record, which describes the store, exists and names a generation. The meta record names a generation
 * only if the store has all records.
 */
export function isMeta(meta: StoredMeta | null): meta is MetaRecord {
  return meta !== null && meta.generation !== null;
}
