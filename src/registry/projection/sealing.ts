import type { MetaRecord } from '../../gateway/records.js';
import type { Clock, Logger, RecordsStore, StoreSnapshot } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { databaseName, noteSealed, readHistory } from './history.js';
import type { History } from './history.js';
import type { Lease } from './lease.js';
import { storedPages } from './pages.js';
import { isMeta } from './rebuild.js';
import type { RecordsWriter } from './outbox.js';

/** Options of the sealing. */
export interface SealingOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'sealIds' | 'complete' | 'inbox'>;
  readonly clock: Clock;
  readonly lease: Pick<Lease, 'finish'>;
  readonly writer: Pick<RecordsWriter, 'rewrite'>;
  /** Publishes pending changes. @returns whether this process still projects */
  readonly drain: () => Promise<boolean>;
  readonly logger?: Logger | undefined;
}

const nothing = { names: [], revision: 0 };
const howToSeal =
  'set keys.recordSecretFile to the secret of the gateways. To rewrite all records anyway, delete the record mg:meta: ' +
  'gateways may respond with 503 until all records are written';

/**
 * Ensures that the current secret seals every record. The database stores which secrets may have sealed the records. A
 * store with another seal was written by someone else.
 */
export class Sealing {
  readonly #options: SealingOptions;
  /** The highest replica count of any meta record that this process has accepted. */
  #replicas = 0;

  constructor(options: SealingOptions) {
    this.#options = options;
  }

  /**
   * Refuses a store that is sealed with a secret which this process lacks: every gateway would refuse its records.
   * @throws Error
   */
  require({ meta, seal }: StoreSnapshot, { sealedBy }: History): void {
    const { sealIds } = this.#options.store;
    const isKnown = sealedBy.length > 0 ? sealedBy.some((id) => sealIds.includes(id)) : seal !== 'other';
    if (meta === null || isKnown) return;
    const why = sealIds.length === 0 ? 'this registry has no secret' : 'this registry has another secret';
    throw new Error(`the records of the store are sealed, and ${why}: ${howToSeal}`);
  }

  /** Whether someone else has written the meta record, or restored an earlier one. */
  isForged({ meta, seal }: StoreSnapshot, { sealedBy, generation, servers }: History): boolean {
    if (sealedBy.length === 0 || meta === null) return false;
    if (!isSealed(seal) || !isMeta(meta)) return true;
    return meta.generation !== generation || meta.servers?.join() !== servers?.join();
  }

  /** Drops the meta record from a snapshot of the store if no holder of a secret has written it. */
  credible(snapshot: StoreSnapshot, { sealedBy }: History): StoreSnapshot {
    return sealedBy.length === 0 || isSealed(snapshot.seal) ? snapshot : { ...snapshot, meta: null };
  }

  /**
   * Accepts a store that has lost nothing. Rewrites its meta record if its seal or content is wrong.
   * @returns the meta record that the store has now
   */
  async restore(snapshot: StoreSnapshot, history: History): Promise<MetaRecord> {
    const { database, store, clock, logger } = this.#options;
    const { sealedBy, generation, servers, published } = history;
    const isForged = this.isForged(snapshot, history);
    if (!isForged && isMeta(snapshot.meta)) {
      this.#replicas = Math.max(this.#replicas, snapshot.meta.replicas ?? 0);
      const isAhead = snapshot.replicas > (snapshot.meta.replicas ?? 0);
      const isSealedAnew = snapshot.seal !== 'current' && sealedBy.join() === store.sealIds[0];
      const asks = store.inbox !== null;
      if (!isAhead && !isSealedAnew && snapshot.meta.asks === asks) return snapshot.meta;
      // Skip if a change was published but is not noted yet: `complete` would set the revision back.
      if (snapshot.revision !== published?.revision) return snapshot.meta;
      // Another replica may be promoted: gateways need the number of replicas.
      const meta = { ...snapshot.meta, replicas: Math.max(snapshot.replicas, snapshot.meta.replicas ?? 0), asks };
      if (this.#mayWriteMeta(snapshot, history)) await store.complete(meta, published);
      return meta;
    }
    const meta: MetaRecord = {
      ...{ version: 1, generation, projectedAt: new Date(clock.now()).toISOString() },
      ...{ database: await databaseName(database), servers: [...(servers ?? snapshot.servers)] },
      ...{ replicas: Math.max(this.#replicas, snapshot.replicas), asks: store.inbox !== null },
    };
    logger?.error({ generation }, 'the meta record of the store is not what this registry wrote: rewriting it');
    if (published !== null) await store.complete(meta, published);
    return meta;
  }

  /** Notes the secret of the next records before any is written. @returns whether this process still projects */
  async begin({ sealedBy }: History): Promise<boolean> {
    const { store, lease } = this.#options;
    const [own] = store.sealIds;
    if (own === undefined || sealedBy.length === 0 || sealedBy.includes(own)) return true;
    return lease.finish(nothing, (transaction) => noteSealed(transaction, [...sealedBy, own]));
  }

  /**
   * Rewrites every record in the same generation if the current secret has not sealed all of them. Writes the meta
   * record last: gateways with the secret believe nothing before it is sealed.
   * @returns whether this process still projects
   */
  async run(meta: MetaRecord, { sealedBy, isOpen, revision }: History): Promise<boolean> {
    const { database, store, lease, writer, drain, logger } = this.#options;
    const [own] = store.sealIds;
    // Not during the wait for forgotten gateways: that wait would not end while records are written.
    if (own === undefined || sealedBy.join() === own || !isOpen) return true;
    logger?.info({ sealedBy, secret: own }, 'sealing every record with the current secret');
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

  /** Whether a meta record may be written: a sealed one states that all records are sealed. */
  #mayWriteMeta({ seal }: StoreSnapshot, { sealedBy }: History): boolean {
    return this.#options.store.sealIds.length === 0 || sealedBy.length > 0 || isSealed(seal);
  }
}

function isSealed(seal: StoreSnapshot['seal']): boolean {
  return seal === 'current' || seal === 'accepted';
}
