import { ulid } from 'ulid';
import type { MetaRecord } from '../../gateway/records.js';
import type { Clock, Logger, Position, RecordsStore, StoredMeta, StoreSnapshot } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { holdBackFromReports, holdBackFromStore, noteRestore } from '../restores/restores.js';
import type { Loss } from './continuity.js';
import { beginGeneration, databaseName, type History, laterGeneration, readHistory, generationIn } from './history.js';
import type { Lease } from './lease.js';
import { oldestChanges, type RecordsWriter } from './outbox.js';
import { storedPages, unknownStoreNames } from './pages.js';

/** Options of a rebuild. */
export interface RebuildOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly clock: Clock;
  readonly lease: Pick<Lease, 'finish' | 'keep'>;
  readonly writer: RecordsWriter;
  /** Creates the name of a new generation. */
  readonly newGeneration: () => string;
  /** Called between two batches; false ends the rebuild. */
  readonly mayGoOn: () => Promise<boolean>;
  /** Replies to gateways that ask for records; false if this process no longer projects. */
  readonly replyToAsks: () => Promise<boolean>;
  /** Called with the new generation before the first write. */
  readonly onBegun: (generation: string, loss: Loss) => void;
  readonly logger?: Logger | undefined;
}

/** A completely filled store. */
export interface Rebuilt {
  readonly generation: string;
  /** The newest change in it. */
  readonly written: Position;
}

/**
 * Begins a new generation, writes every record, removes records that the database does not know, then marks the store
 * complete. No valid record is missing meanwhile. Changes are written between two pages but published at the end: a
 * gateway that knows a revision relies on every record up to it.
 */
export class Rebuild {
  readonly #options: RebuildOptions;

  constructor(options: RebuildOptions) {
    this.#options = options;
  }

  /** @returns null if this process no longer projects */
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
      const why = 'the store differs from the state that the database has recorded for it';
      logger?.warn(details, `${why}: rewriting all records in a new generation`);
    }
    const begun = { generation, revision: loss.known };
    const { lease } = this.#options;
    const isKept = await lease.finish({ names: [], revision: 0 }, (transaction) => beginGeneration(transaction, begun));
    if (!isKept) return null;
    onBegun(generation, loss);
    if (loss.isUnverified) await noteRestore(this.#options, loss.isBehind);
    // An earlier run that ended here may have raised the revision, which hides that the database is behind.
    const isInterrupted = before.published === null && before.revision > 0;
    // Before any write: only the store or the gateways may still know the lost changes.
    if ((loss.isBehind || isInterrupted) && !(await this.#holdBack(loss))) return null;

    const { revision } = await readHistory(database);
    const progress = { written: { revision, change: ulid(clock.now()) } };
    const common = {
      ...{ generation, database: await databaseName(database), servers: [...servers], asks: store.inbox !== null },
      replicas: Math.max(snapshot.replicas, isMeta(meta) ? (meta.replicas ?? 0) : 0),
    };
    const now = (): string => new Date(clock.now()).toISOString();
    // Only in an empty store: gateways that still believe the old one would have to ask for each record.
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

  /** Checks that this process still projects after a page, and writes pending changes. */
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

  async #holdBack({ isBehind, known }: Loss): Promise<boolean> {
    const { mayGoOn, logger } = this.#options;
    const uncompared = isBehind ? known : 0;
    const ofStore = await holdBackFromStore(this.#options, uncompared, mayGoOn);
    if (ofStore === null) return false;
    const heldBack = ofStore + (await holdBackFromReports(this.#options, uncompared));
    if (isBehind || heldBack > 0)
      logger?.warn({ heldBack }, 'the database lacks changes that the store or a gateway knows; see "restores list"');
    return true;
  }
}

/** Whether the meta record is complete and usable. */
export function isMeta(meta: StoredMeta | null): meta is MetaRecord {
  return meta !== null && meta.generation !== null;
}
