import type { MetaRecord } from '../../gateway/records.js';
import type { Clock, Logger, RecordsStore, StoreLook } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { databaseName, noteSealed, readHistory } from './history.js';
import type { History } from './history.js';
import type { Lease } from './lease.js';
import { storedPages } from './pages.js';
import { isMeta } from './rebuild.js';
import type { RecordsWriter } from './outbox.js';

/** What records are sealed with. */
export interface SealingOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'sealIds' | 'complete' | 'inbox'>;
  readonly clock: Clock;
  readonly lease: Pick<Lease, 'finish'>;
  readonly writer: Pick<RecordsWriter, 'rewrite'>;
  /** Publishes what was changed meanwhile. @returns whether this process still projects */
  readonly drain: () => Promise<boolean>;
  readonly logger?: Logger | undefined;
}

const nothing = { names: [], revision: 0 };
const howToSeal =
  'set keys.recordSecretFile to the secret of the gateways. To write everything anew all the same, delete the record mg:meta: ' +
  'gateways may answer 503 until all is written';

/**
 * Sees to it that every record is sealed by the secret that seals now. The database says by which secrets the records may be sealed:
 * a store that says otherwise was written by somebody else.
 */
export class Sealing {
  readonly #options: SealingOptions;
  /** The most replicas that a meta record named which this process has believed. */
  #replicas = 0;

  constructor(options: SealingOptions) {
    this.#options = options;
  }

  /**
   * Refuses a store that is sealed by a secret which this process does not have: what it wrote would be refused by every gateway.
   * @throws Error
   */
  require({ meta, seal }: StoreLook, { sealedBy }: History): void {
    const { sealIds } = this.#options.store;
    const isKnown = sealedBy.length > 0 ? sealedBy.some((id) => sealIds.includes(id)) : seal !== 'other';
    if (meta === null || isKnown) return;
    const why = sealIds.length === 0 ? 'this registry has no secret' : 'this registry has another secret';
    throw new Error(`the records of the store are sealed, and ${why}: ${howToSeal}`);
  }

  /** Whether somebody else has written the meta record, or put back an earlier one. */
  isForged({ meta, seal }: StoreLook, { sealedBy, generation, servers }: History): boolean {
    if (sealedBy.length === 0 || meta === null) return false;
    if (!isSealed(seal) || !isMeta(meta)) return true;
    return meta.generation !== generation || meta.servers?.join() !== servers?.join();
  }

  /** A look at a store without what it says of itself, where nobody with a secret has written that. */
  credible(look: StoreLook, { sealedBy }: History): StoreLook {
    return sealedBy.length === 0 || isSealed(look.seal) ? look : { ...look, meta: null };
  }

  /**
   * Takes in a store where nothing was lost, and writes its meta record where that is not sealed as it should be.
   * @returns the meta record that the store has now
   */
  async restore(look: StoreLook, history: History): Promise<MetaRecord> {
    const { database, store, clock, logger } = this.#options;
    const { sealedBy, generation, servers, published } = history;
    const isForged = this.isForged(look, history);
    if (!isForged && isMeta(look.meta)) {
      this.#replicas = Math.max(this.#replicas, look.meta.replicas ?? 0);
      const isAhead = look.replicas > (look.meta.replicas ?? 0);
      const isSealedAnew = look.seal !== 'current' && sealedBy.join() === store.sealIds[0];
      const asks = store.inbox !== null;
      if (!isAhead && !isSealedAnew && look.meta.asks === asks) return look.meta;
      // A change that was published, and is not noted yet, would be taken back.
      if (look.revision !== published?.revision) return look.meta;
      // Another replica can take the server's place: gateways have to know how many.
      const meta = { ...look.meta, replicas: Math.max(look.replicas, look.meta.replicas ?? 0), asks };
      if (this.#mayWriteMeta(look, history)) await store.complete(meta, published);
      return meta;
    }
    const meta: MetaRecord = {
      ...{ version: 1, generation, projectedAt: new Date(clock.now()).toISOString() },
      ...{ database: await databaseName(database), servers: [...(servers ?? look.servers)] },
      ...{ replicas: Math.max(this.#replicas, look.replicas), asks: store.inbox !== null },
    };
    logger?.error({ generation }, 'the meta record of the store is not what this registry wrote: it is written again');
    if (published !== null) await store.complete(meta, published);
    return meta;
  }

  /** Notes by what the next records are sealed, before any is. @returns whether this process still projects */
  async begin({ sealedBy }: History): Promise<boolean> {
    const { store, lease } = this.#options;
    const [own] = store.sealIds;
    if (own === undefined || sealedBy.length === 0 || sealedBy.includes(own)) return true;
    return lease.finish(nothing, (transaction) => noteSealed(transaction, [...sealedBy, own]));
  }

  /**
   * Writes every record again in the same generation, where some are not sealed by the secret that seals now. The meta record comes
   * last: gateways with the secret believe nothing before it is sealed.
   * @returns whether this process still projects
   */
  async run(meta: MetaRecord, { sealedBy, isOpen, revision }: History): Promise<boolean> {
    const { database, store, lease, writer, drain, logger } = this.#options;
    const [own] = store.sealIds;
    // The wait for forgotten gateways would not end while records are written.
    if (own === undefined || sealedBy.join() === own || !isOpen) return true;
    logger?.info({ sealedBy, secret: own }, 'every record is sealed with the secret that seals now');
    for await (const entries of storedPages(database)) {
      await writer.rewrite(entries, revision);
      const names = entries.map(({ name }) => name);
      if (!(await lease.finish({ names, revision }, () => Promise.resolve())) || !(await drain())) return false;
    }
    const { published } = await readHistory(database);
    if (published === null) return false;
    await store.complete({ ...meta, projectedAt: new Date(this.#options.clock.now()).toISOString() }, published);
    const isKept = await lease.finish(nothing, (transaction) => noteSealed(transaction, [own]));
    if (isKept) logger?.info({ secret: own }, 'every record is sealed: gateways may be started with the secret');
    return isKept;
  }

  /** A sealed meta record says that all records are sealed. */
  #mayWriteMeta({ seal }: StoreLook, { sealedBy }: History): boolean {
    return this.#options.store.sealIds.length === 0 || sealedBy.length > 0 || isSealed(seal);
  }
}

function isSealed(seal: StoreLook['seal']): boolean {
  return seal === 'current' || seal === 'accepted';
}
