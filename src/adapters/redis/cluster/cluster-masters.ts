import { setTimeout as wait } from 'node:timers/promises';
import { connectNodeOnce } from '../connection.js';
import type { RedisAddress } from '../connection.js';
import { ClusterMaster, viewOf } from './cluster-master.js';
import type { MasterEvents } from './cluster-master.js';
import { ownersOf } from './cluster-view.js';
import type { ClusterNode, ClusterView } from './cluster-view.js';

/** How to reach the masters of a Cluster, and callbacks for their events. */
export interface ClusterOptions {
  readonly address: RedisAddress;
  /** Prefixes of the Redis keys whose changes Redis reports (CLIENT TRACKING). */
  readonly prefixes: readonly string[];
  readonly events: Omit<MasterEvents, 'onLost'>;
  /** Called for each connection failure, and when no node returns a usable slot map. */
  readonly onError: (error: Error) => void;
}

const attempts = 5;
/**
 * Pause before the slot map is checked again. It is short, because the nodes exchange a new map within milliseconds.
 */
const betweenAttemptsMilliseconds = 20;

/**
 * The masters of a Cluster and a slot map that every master has confirmed. A MOVED redirection is not followed, because
 * it may lead to a promoted replica that lacks a revocation. A master that was isolated and replaced continues to reply
 * for a while. The next check detects this, because the masters that elected the new master no longer confirm the old
 * slot map.
 */
export class ClusterMasters {
  readonly #options: ClusterOptions;
  readonly #masters = new Map<string, ClusterMaster>();
  #view: ClusterView | null = null;
  #owners: readonly ClusterMaster[] = [];
  #isAgreed = false;
  #isClosed = false;
  #epoch = 0;
  #adopting: Promise<void> | null = null;

  constructor(options: ClusterOptions) {
    this.#options = options;
  }

  /**
   * Whether all masters confirmed the slot map in the last check, and every invalidation message since then arrived.
   */
  get connected(): boolean {
    return this.#isAgreed && this.all.every(({ isUp }) => isUp);
  }

  /**
   * A counter that is incremented when data that was read earlier becomes unreliable: after a new slot map, a
   * reconnect, a restart of tracking or a flush.
   */
  get epoch(): number {
    return this.#epoch;
  }

  /**
   * The run ids of the masters that have slots. An element is null if INFO omits the run id. The list is null while the
   * slot map is not confirmed.
   */
  get runIds(): readonly (string | null)[] | null {
    return this.#isAgreed ? [...new Set(this.#owners)].map(({ runId }) => runId) : null;
  }

  get all(): readonly ClusterMaster[] {
    return [...this.#masters.values()];
  }

  /**
   * Returns the master of a slot.
   * @throws Error while the slot map is not confirmed
   */
  owner(slot: number): ClusterMaster {
    const owner = this.#isAgreed ? this.#owners[slot] : undefined;
    if (owner === undefined) throw new Error('the masters of the Cluster do not agree on the slot map yet');
    return owner;
  }

  /**
   * Makes all masters confirm the slot map. If the current map is not confirmed, first adopts a new map. Rejects if any
   * master does not confirm the map.
   */
  async agree(): Promise<void> {
    if (!this.#isAgreed) await (this.#adopting ??= this.#adopt().finally(() => (this.#adopting = null)));
    try {
      await this.#confirm(this.#view?.fingerprint);
    } catch (error) {
      this.markUnverified();
      throw error;
    }
  }

  /** Marks the slot map as unconfirmed, so that commands are rejected until all masters confirm it again. */
  markUnverified(): void {
    if (!this.#isAgreed) return;
    this.#isAgreed = false;
    this.#options.events.onDisconnected();
  }

  /**
   * Sends a PING to every master. Resolves when all invalidation messages that preceded the replies have been handled.
   */
  async catchUp(): Promise<void> {
    await Promise.all(this.all.map((master) => master.catchUp()));
  }

  close(): void {
    this.#isClosed = true;
    this.#isAgreed = false;
    this.#connectTo([]);
  }

  async #adopt(): Promise<void> {
    const proposed = await this.#propose();
    const owners = ownersOf(proposed);
    this.#connectTo(proposed.masters);
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#confirm(proposed.fingerprint);
        break;
      } catch (error) {
        if (attempt === attempts || !(error instanceof Disagreement)) throw error;
        await wait(betweenAttemptsMilliseconds);
      }
    }
    const isAnother = this.#view?.fingerprint !== proposed.fingerprint;
    this.#view = proposed;
    const ordered = proposed.masters.map(({ id }) => this.#masters.get(id));
    this.#owners = Array.from(owners, (index) => ordered[index]).filter((master) => master !== undefined);
    this.#isAgreed = true;
    if (isAnother) this.#missed();
  }

  /**
   * Returns the slot map with the highest Cluster epoch, which is the newest map. Queries the connected masters. If no
   * master replies, queries the configured nodes.
   */
  async #propose(): Promise<ClusterView> {
    const { address } = this.#options;
    const known = await Promise.allSettled(this.all.map((master) => master.view()));
    const results = known.some(({ status }) => status === 'fulfilled')
      ? known
      : await Promise.allSettled((address.cluster ?? []).map((node) => this.#readViewOnce(node)));
    const views = results.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    const [newest] = views.toSorted((one, other) => other.epoch - one.epoch);
    if (newest !== undefined) return newest;
    const cause = asError(results.find((one) => one.status === 'rejected')?.reason);
    const failure = new Error(`no node of the Cluster returned a usable slot map: ${cause.message}`, { cause });
    this.#options.onError(failure);
    throw failure;
  }

  async #readViewOnce(node: { host: string; port: number }): Promise<ClusterView> {
    const { address } = this.#options;
    // Keep the first error event, because `connect()` rejects only with "Connection is closed".
    let failure: unknown = null;
    const redis = connectNodeOnce(address, node, (error) => (failure ??= error));
    try {
      await redis.connect();
      return await viewOf(redis, address, node);
    } catch (error) {
      throw asError(failure ?? error);
    } finally {
      redis.disconnect();
    }
  }

  #connectTo(nodes: readonly ClusterNode[]): void {
    const wanted = new Map(nodes.map((node) => [node.id, node]));
    for (const [id, master] of this.#masters) {
      const node = wanted.get(id);
      if (node?.host === master.node.host && node.port === master.node.port) continue;
      this.#masters.delete(id);
      master.close();
    }
    if (this.#isClosed) return;
    const { address, prefixes, events, onError } = this.#options;
    for (const node of nodes) {
      if (this.#masters.has(node.id)) continue;
      const own: MasterEvents = {
        ...events,
        onEverythingChanged: () => {
          this.#epoch += 1;
          events.onEverythingChanged();
        },
        onListening: () => {
          this.#missed();
        },
        onDisconnected: () => {
          this.markUnverified();
        },
        onLost: () => {
          this.#epoch += 1;
        },
      };
      this.#masters.set(node.id, new ClusterMaster(node, address, prefixes, own, onError));
    }
  }

  async #confirm(fingerprint: string | undefined): Promise<void> {
    const masters = this.all;
    const views = await Promise.allSettled(masters.map((master) => master.view()));
    for (const view of views) {
      if (view.status === 'fulfilled' && view.value.fingerprint !== fingerprint) throw new Disagreement();
    }
    for (const view of views) if (view.status === 'rejected') throw asError(view.reason);
    if (masters.length === 0 || !masters.every(({ isUp }) => isUp)) {
      throw new Error('CLIENT TRACKING is not on yet for the connections to some masters of the Cluster');
    }
  }

  #missed(): void {
    this.#epoch += 1;
    this.#options.events.onListening();
  }
}

class Disagreement extends Error {
  constructor() {
    super('the masters of the Cluster do not report the same epoch and slots');
    this.name = 'Disagreement';
  }
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}
