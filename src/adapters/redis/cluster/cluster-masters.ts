import { setTimeout as wait } from 'node:timers/promises';
import { connectNodeOnce } from '../connection.js';
import type { RedisAddress } from '../connection.js';
import { ClusterMaster, viewOf } from './cluster-master.js';
import type { MasterEvents } from './cluster-master.js';
import { ownersOf } from './cluster-view.js';
import type { ClusterNode, ClusterView } from './cluster-view.js';

/** What the masters of a Cluster are reached with. */
export interface ClusterOptions {
  readonly address: RedisAddress;
  /** Prefixes of the names whose changes are listened for. */
  readonly prefixes: readonly string[];
  readonly events: Omit<MasterEvents, 'onLost'>;
  /** Told of each failure of a connection, and when no node answers. */
  readonly onError: (error: Error) => void;
}

const attempts = 5;
/** Nodes tell each other of a change within milliseconds. */
const betweenAttemptsMilliseconds = 20;

/**
 * The masters of a Cluster, and which of them has which slot: by a map that every one of them confirmed, and no other. A
 * redirection to a new owner is not followed: a replica that was promoted may have lost a revocation, which has to be
 * found out before it is asked for a key. And a master that was cut off from its Cluster answers on for a while, though
 * another has taken its place; but those that voted for the other one know the new epoch, so they confirm the old no more.
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

  /** Whether the map was confirmed when that was last asked, and every change at every master has been heard since. */
  get hearing(): boolean {
    return this.#isAgreed && this.all.every(({ isUp }) => isUp);
  }

  /** Counts what makes everything known before doubtful: another map, a master connected to or listened to anew, one that was flushed. */
  get epoch(): number {
    return this.#epoch;
  }

  /** The run ids of the masters that have slots, null for one that does not say; null while the map is not confirmed. */
  get runIds(): readonly (string | null)[] | null {
    return this.#isAgreed ? [...new Set(this.#owners)].map(({ runId }) => runId) : null;
  }

  get all(): readonly ClusterMaster[] {
    return [...this.#masters.values()];
  }

  /**
   * The master of a slot.
   * @throws Error while the map is not confirmed
   */
  owner(slot: number): ClusterMaster {
    const owner = this.#isAgreed ? this.#owners[slot] : undefined;
    if (owner === undefined) throw new Error('the masters of the Cluster do not agree yet on who has which slot');
    return owner;
  }

  /** Has all masters confirm the map at some moment after this was called; takes on another one that all confirm. */
  async agree(): Promise<void> {
    if (!this.#isAgreed) await (this.#adopting ??= this.#adopt().finally(() => (this.#adopting = null)));
    try {
      await this.#confirm(this.#view?.fingerprint);
    } catch (error) {
      this.doubt();
      throw error;
    }
  }

  /** Believes the map no more until it is confirmed again. */
  doubt(): void {
    if (!this.#isAgreed) return;
    this.#isAgreed = false;
    this.#options.events.onDeaf();
  }

  /** Resolves when every notice has been heard that any master had sent before it got this question. */
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

  /** What the best informed of the nodes that can be asked sees: of those that are known, or else of the first ones. */
  async #propose(): Promise<ClusterView> {
    const { address } = this.#options;
    const known = await Promise.allSettled(this.all.map((master) => master.view()));
    const answers = known.some(({ status }) => status === 'fulfilled')
      ? known
      : await Promise.allSettled((address.cluster ?? []).map((node) => this.#askOnce(node)));
    const views = answers.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    const [newest] = views.toSorted((one, other) => other.epoch - one.epoch);
    if (newest !== undefined) return newest;
    const cause = asError(answers.find((one) => one.status === 'rejected')?.reason);
    const failure = new Error(`no node of the Cluster can tell who has which slot: ${cause.message}`, { cause });
    this.#options.onError(failure);
    throw failure;
  }

  async #askOnce(node: { host: string; port: number }): Promise<ClusterView> {
    const { address } = this.#options;
    // That the connection is closed does not say why; the failure before it does.
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
        onDeaf: () => {
          this.doubt();
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
      throw new Error('not every master of the Cluster is listened to yet');
    }
  }

  #missed(): void {
    this.#epoch += 1;
    this.#options.events.onListening();
  }
}

class Disagreement extends Error {
  constructor() {
    super('the masters of the Cluster do not see the same epoch and slots');
    this.name = 'Disagreement';
  }
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}
