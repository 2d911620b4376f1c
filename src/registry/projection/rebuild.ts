import { ulid } from 'ulid';
import type { MetaRecord } from '../../gateway/records.js';
import type { Clock, Logger, Position, RecordsStore, StoredMeta, StoreLook } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { holdBackFromReports, holdBackFromStore, noteRestore } from '../restores/restores.js';
import type { Loss } from './continuity.js';
import {
  beginGeneration,
  databaseName,
  type History,
  laterGeneration,
  readHistory,
  statedGeneration,
} from './history.js';
import type { Lease } from './lease.js';
import { oldestChanges, type RecordsWriter } from './outbox.js';
import { storedPages, strangeNames } from './pages.js';

/** What a rebuild works with. */
export interface RebuildOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly clock: Clock;
  readonly lease: Pick<Lease, 'finish' | 'keep'>;
  readonly writer: RecordsWriter;
  /** A name for a new generation. */
  readonly newGeneration: () => string;
  /** Asked between two batches. */
  readonly mayGoOn: () => Promise<boolean>;
  /** Answers gateways that ask for records; false where this process projects no more. */
  readonly answerAsks: () => Promise<boolean>;
  /** Told of the new generation, before anything is written. */
  readonly onBegun: (generation: string, loss: Loss) => void;
  readonly logger?: Logger | undefined;
}

/** A store that holds everything. */
export interface Rebuilt {
  readonly generation: string;
  /** The newest change that it holds. */
  readonly written: Position;
}

/**
 * Begins a new generation, writes every record, then removes what the database does not know, then says that the store is
 * complete. Nothing that is valid is missing meanwhile. Changes are written between two pages; they are published at the end,
 * for a gateway that knows the number of a change relies on every record up to it.
 */
export class Rebuild {
  readonly #options: RebuildOptions;

  constructor(options: RebuildOptions) {
    this.#options = options;
  }

  /** @returns null where this process projects no more */
  async run(
    look: StoreLook,
    { before, loss }: { readonly before: History; readonly loss: Loss },
  ): Promise<Rebuilt | null> {
    const { database, store, clock, writer, newGeneration, onBegun, logger } = this.#options;
    const { meta, servers } = look;
    const generation = laterGeneration(newGeneration(), [before.generation, statedGeneration(meta)]);
    const details = {
      ...{ generation, before: before.generation, inStore: meta?.generation ?? null, servers },
      ...{ revision: before.revision, revisionInStore: look.revision, waitMilliseconds: loss.waitMilliseconds },
    };
    if (store.endsWithProcess || before.published === null)
      logger?.info(details, 'every record is written to the store');
    else {
      const why = 'the store is not what the database says that it was left as';
      logger?.warn(details, `${why}: everything is written anew, in a new generation`);
    }
    const begun = { generation, revision: loss.known };
    const { lease } = this.#options;
    const isKept = await lease.finish({ names: [], revision: 0 }, (transaction) => beginGeneration(transaction, begun));
    if (!isKept) return null;
    onBegun(generation, loss);
    if (loss.isDoubtful) await noteRestore(this.#options, loss.isBehind);
    // A process that ended here had counted up the revision: nothing shows any more that the database is behind.
    const isInterrupted = before.published === null && before.revision > 0;
    // Before anything is written: the store is the one that knows, or gateways are.
    if ((loss.isBehind || isInterrupted) && !(await this.#holdBack(loss))) return null;

    const { revision } = await readHistory(database);
    const progress = { written: { revision, change: ulid(clock.now()) } };
    const common = {
      ...{ generation, database: await databaseName(database), servers: [...servers], asks: store.inbox !== null },
      replicas: Math.max(look.replicas, isMeta(meta) ? (meta.replicas ?? 0) : 0),
    };
    const now = (): string => new Date(clock.now()).toISOString();
    // Only where gateways believe nothing that is there: one that believes the store would have to ask for each record.
    const isEmpty = meta === null || (meta.generation === null && meta.filling !== undefined);
    if (isEmpty) await store.fill?.({ version: 2, filling: true, ...common, projectedAt: now() });
    for await (const entries of storedPages(database)) {
      await writer.rewrite(entries, revision);
      const names = entries.map(({ name }) => name);
      if (!(await this.#goOn(names, revision, progress))) return null;
    }
    for await (const { unknown: names } of strangeNames(database, store)) {
      const gone = names.map((name) => ({ name, value: null }));
      if (gone.length > 0) await writer.rewrite(gone, revision);
      if (!(await this.#goOn(names, revision, progress))) return null;
    }
    const { written } = progress;
    await store.complete({ version: 1, ...common, projectedAt: now() }, written);
    return { generation, written };
  }

  /** Makes sure that a page was written by the process that projects, and writes what was changed meanwhile. */
  async #goOn(names: readonly string[], revision: number, progress: { written: Position }): Promise<boolean> {
    const { database, lease, writer, mayGoOn, answerAsks } = this.#options;
    if (!(await lease.keep({ names, revision }))) return false;
    for (;;) {
      if (!(await mayGoOn()) || !(await answerAsks())) return false;
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

/** Whether it is a meta record that can be used. */
export function isMeta(meta: StoredMeta | null): meta is MetaRecord {
  return meta !== null && meta.generation !== null;
}
