import { LRUCache } from 'lru-cache';
import { growingTo } from '../../../gateway/growing-to.js';
import { MalformedRecord } from '../../../gateway/records.js';
import type { BelievedState } from '../store-state.js';

interface Known {
  readonly revision: number;
  /** The store's own newest revision at that time: a change of the record after it has a higher one. */
  readonly newest: number;
}

/**
 * Remembers up to which revision records were known when they had to be dropped. Within a generation no record goes back, and none
 * is removed: whoever puts an older one in its place, or deletes it, must neither revive a revoked key nor make a good one unknown.
 */
export class RevisionFloor {
  readonly #known: LRUCache<string, Known>;
  #generation: string | null = null;

  constructor(maxEntries: number) {
    this.#known = new LRUCache(growingTo(maxEntries));
  }

  /**
   * Takes in the revision of a record that is dropped because it may have changed. One that the registry cannot have made is left
   * out: a forged record must not keep the true one away when that is back.
   * @param held undefined where none was held
   * @param last what the gateway believes of the store
   */
  raise(name: string, held: { readonly revision: number } | Error | undefined, last: BelievedState | null): void {
    if (held === undefined || held instanceof Error || last === null) return;
    const { revision } = held;
    const { generation, revision: newest } = last;
    if (generation !== this.#generation) this.#known.clear();
    this.#generation = generation;
    const before = this.#known.get(name);
    const isForged = before !== undefined && revision !== before.revision && revision <= before.newest;
    if (revision <= newest && !isForged) this.#known.set(name, { revision, newest });
  }

  /**
   * Sees to it that a record that was read is no older one.
   * @param record null where there is none
   * @param generation that of the store which it was read from
   * @throws MalformedRecord
   */
  check(name: string, record: { readonly revision: number } | null, generation: string): void {
    const known = generation === this.#generation ? this.#known.get(name)?.revision : undefined;
    if (known === undefined || (record !== null && record.revision >= known)) return;
    const found = record === null ? 'it is not there' : `it has revision ${record.revision}`;
    throw new MalformedRecord(`${found}, though it had revision ${known}: somebody else writes or deletes records`);
  }
}
