import type { RecordsStore, StoreMemory } from '../ports.js';

const remedy = 'set maxmemory-policy noeviction, and maxmemory to more than all records need';

/**
 * Knows what Redis evicts. A record that was evicted cannot be told from one that never was, so a registry that starts writes nothing
 * to a Redis that may evict records. One that writes already goes on: a revocation matters more than what may be evicted.
 */
export class EvictionGuard {
  readonly #store: Pick<RecordsStore, 'memory'>;
  #memory: StoreMemory | null = null;
  #hasWritten = false;

  constructor(store: Pick<RecordsStore, 'memory'>) {
    this.#store = store;
  }

  /** What Redis last said of its memory; null for a store that evicts nothing, or was not reached. */
  get memory(): StoreMemory | null {
    return this.#memory;
  }

  /** How many records, or others, Redis has evicted since it started; null for a store that evicts none, or was not reached. */
  get evictedKeys(): number | null {
    return this.#memory?.evictedKeys ?? null;
  }

  /** What an operator has to see to. */
  get warnings(): readonly string[] {
    const policies = this.#memory?.policies ?? [];
    const ofAll = policies.find(evictsRecords);
    if (ofAll !== undefined) return [`Redis may evict records (maxmemory-policy ${ofAll}): ${remedy}`];
    const ofSome = policies.find((policy) => policy.startsWith('volatile-'));
    if (ofSome === undefined) return [];
    return [`Redis may evict acknowledgements and reports of gateways (maxmemory-policy ${ofSome}): ${remedy}`];
  }

  /**
   * Looks at what Redis does when it is full.
   * @throws Error where it may evict records, and this process has written none yet
   */
  async look(): Promise<void> {
    this.#memory = await this.#store.memory();
    if (!this.#hasWritten && this.#memory?.policies.some(evictsRecords) === true) throw new Error(this.warnings[0]);
  }

  /** Takes in that this process writes to the store. */
  written(): void {
    this.#hasWritten = true;
  }
}

/** Whether a `maxmemory-policy` lets Redis evict what has no lifetime. */
export function evictsRecords(policy: string): boolean {
  return policy.startsWith('allkeys-');
}
