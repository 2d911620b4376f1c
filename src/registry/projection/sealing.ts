import type { MetaRecord } from '../../gateway/records.js';
import type { Clock, Logger, RecordsStore, StoreSnapshot } from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { databaseName, noteSealed, readHistory } from './history.js';
import type { History } from './history.js';
import { type Lease, noRecords } from './lease.js';
import { storedPages } from './pages.js';
import { isMeta } from './rebuild.js';
import type { RecordsWriter } from './outbox.js';

/** Dependencies of Sealing. */
export interface SealingOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'sealIds' | 'complete' | 'inbox'>;
  readonly clock: Clock;
  readonly lease: Pick<Lease, 'finish'>;
  readonly writer: Pick<RecordsWriter, 'rewrite'>;
  /**
   * Writes pending changes and announces them to gateways.
   * @returns false if the sealing (authentication) of records has to stop
   */
  readonly drain: () => Promise<boolean>;
  readonly logger?: Logger | undefined;
}

const howToSeal =
  'set keys.recordSecretFile to the secret of the gateways. To rewrite all records anyway, delete the record mg:meta: ' +
  'gateways may respond with 503 until all records are written';

/**
 * Ensures that each record is sealed, that is, authenticated with the current secret. The database stores the ids of
 * the secrets with which the records are sealed. The meta record, which describes the store, is sealed too. If the meta
 * record has no valid seal although the records are sealed, a Redis client other than a registry wrote it.
 */
export class Sealing {
  readonly #options: SealingOptions;
  /** The highest number of replicas in any meta record that this process has accepted. */
  #replicas = 0;

  constructor(options: SealingOptions) {
    this.#options = options;
  }

  /**
   * Rejects a store that is sealed with a secret that this process does not have: gateways would reject this process's
   * records.
   * @throws Error
   */
  require({ meta, seal }: StoreSnapshot, { sealedBy }: History): void {
    const { sealIds } = this.#options.store;
    const isKnown = sealedBy.length > 0 ? sealedBy.some((id) => sealIds.includes(id)) : seal !== 'other';
    if (meta === null || isKnown) return;
    const why =
      sealIds.length === 0 ? 'this registry has no keys.recordSecretFile' : 'this registry has another secret';
    throw new Error(`the records of the store are sealed (authenticated with a secret), but ${why}: ${howToSeal}`);
  }

  /**
   * Whether a Redis client other than a registry has written the meta record, or replaced it with an earlier version.
   * False for a store that is not sealed, because a forgery cannot be detected there.
   */
  isForged({ meta, seal }: StoreSnapshot, { sealedBy, generation, servers }: History): boolean {
    if (sealedBy.length === 0 || meta === null) return false;
    if (!isSealed(seal) || !isMeta(meta)) return true;
    return meta.generation !== generation || meta.servers?.join() !== servers?.join();
  }

  /**
   * Returns the snapshot without its meta record if that record lacks the seal that it should have: any Redis client
   * could have written it.
   */
  credible(snapshot: StoreSnapshot, { sealedBy }: History): StoreSnapshot {
    return sealedBy.length === 0 || isSealed(snapshot.seal) ? snapshot : { ...snapshot, meta: null };
  }

  /**
   * Call this for a store that has lost no records or changes. Rewrites the meta record if its seal or content is wrong
   * or outdated.
   * @returns the current meta record of the store
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
      // Does not write if the store's published revision differs from the one that the database recorded: `complete`
      // would set the store back to the recorded revision.
      if (snapshot.revision !== published?.revision) return snapshot.meta;
      // Gateways need the number of replicas, because each replica could be promoted to master.
      const meta = { ...snapshot.meta, replicas: Math.max(snapshot.replicas, snapshot.meta.replicas ?? 0), asks };
      if (this.#mayWriteMeta(snapshot, history)) await store.complete(meta, published);
      return meta;
    }
    const meta: MetaRecord = {
      ...{ version: 1, generation, projectedAt: new Date(clock.now()).toISOString() },
      ...{ database: await databaseName(database), servers: [...(servers ?? snapshot.servers)] },
      ...{ replicas: Math.max(this.#replicas, snapshot.replicas), asks: store.inbox !== null },
    };
    logger?.error(
      { generation },
      'a Redis client other than the registry changed mg:meta, the record that describes the store: rewriting mg:meta',
    );
    if (published !== null) await store.complete(meta, published);
    return meta;
  }

  /**
   * If the store is sealed with other secrets only, adds the id of the current secret to the database before any record
   * is sealed with this secret. Otherwise it would seem that a Redis client other than a registry had written the newly
   * sealed records.
   * @returns whether this process still holds the lease (the right to write to the store)
   */
  async begin({ sealedBy }: History): Promise<boolean> {
    const { store, lease } = this.#options;
    const [own] = store.sealIds;
    if (own === undefined || sealedBy.length === 0 || sealedBy.includes(own)) return true;
    return lease.finish(noRecords, (transaction) => noteSealed(transaction, [...sealedBy, own]));
  }

  /**
   * Seals every record with the current secret. Does not begin a new generation. Writes the meta record last, because
   * its seal states that all records are sealed.
   * @returns false if the sealing stopped early, for example because another process now holds the lease
   */
  async run(meta: MetaRecord, { sealedBy, isOpen, revision }: History): Promise<boolean> {
    const { database, store, lease, writer, drain, logger } = this.#options;
    const [own] = store.sealIds;
    // Does nothing while `Opening` waits for gateways that the database might not list. While this function writes
    // records, nothing would end that wait.
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
    const isKept = await lease.finish(noRecords, (transaction) => noteSealed(transaction, [own]));
    if (isKept) logger?.info({ secret: own }, 'every record is sealed: gateways may be started with the secret');
    return isKept;
  }

  /**
   * Whether this process is allowed to write the meta record now. A process with a secret also seals the meta record,
   * and this seal states that all records are sealed. So such a process must not write the meta record before all
   * records are sealed.
   */
  #mayWriteMeta({ seal }: StoreSnapshot, { sealedBy }: History): boolean {
    return this.#options.store.sealIds.length === 0 || sealedBy.length > 0 || isSealed(seal);
  }
}

function isSealed(seal: StoreSnapshot['seal']): boolean {
  return seal === 'current' || seal === 'accepted';
}
