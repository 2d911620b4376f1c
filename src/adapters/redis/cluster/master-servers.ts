import type { StoreMemory } from '../../../registry/ports.js';
import { factsOf } from '../same-server.js';
import { memoryOf } from '../server-memory.js';
import type { ClusterMasters } from './cluster-masters.js';

/** What the masters of a Cluster say of themselves. */
export class MasterServers {
  readonly #masters: ClusterMasters;
  #known: { readonly epoch: number; readonly runIds: readonly string[] } = { epoch: -1, runIds: [] };

  constructor(masters: ClusterMasters) {
    this.#masters = masters;
  }

  /** The run ids of all masters, in their order; none while one does not say. Asked for once in an epoch. */
  async runIds(): Promise<readonly string[]> {
    const { all, epoch } = this.#masters;
    if (this.#known.epoch === epoch) return this.#known.runIds;
    const facts = await Promise.all(all.map(({ commands }) => factsOf(commands)));
    const runIds = facts.map(({ runId }) => runId).filter((runId) => runId !== null);
    const isComplete = runIds.length === all.length && this.#masters.epoch === epoch;
    if (isComplete) this.#known = { epoch, runIds: runIds.toSorted() };
    return isComplete ? this.#known.runIds : [];
  }

  async memory(): Promise<StoreMemory> {
    if (!this.#masters.hearing) await this.#masters.agree();
    return memoryOf(this.#masters.all.map(({ commands }) => commands));
  }
}
