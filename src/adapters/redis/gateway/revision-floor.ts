import { LRUCache } from 'lru-cache';
import { lruOptions } from '../../../gateway/growing-to.js';
import { MalformedRecord } from '../../../gateway/records.js';
import type { BelievedState } from '../store-state.js';

interface Known {
  readonly revision: number;
  /** The store's newest revision when the record was dropped. Any later change of the record has a higher revision. */
  readonly newest: number;
}

/**
 * Remembers the revisions of records that the cache has dropped, to detect an attacker who writes to Redis. The
 * revision of a record is the number of its last change. It never decreases within a generation, which is one unbroken
 * history of changes. So a record with a lower revision is rejected, such as an older copy that would make a revoked
 * key active again. A missing record is rejected too, because an attacker may have deleted it.
 */
export class RevisionFloor {
  readonly #known: LRUCache<string, Known>;
  #generation: string | null = null;

  constructor(maxEntries: number) {
    this.#known = new LRUCache(lruOptions(maxEntries));
  }

  /**
   * Remembers the revision of a record that is dropped because it may have changed. Ignores a revision that the
   * registry cannot have written: a forged high revision would later block the genuine record.
   * @param held the cached record; undefined if none was cached
   * @param last the state of the store that a heartbeat last trusted; null: no heartbeat has trusted it yet
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
   * Rejects a record that is missing or has a lower revision than the remembered revision.
   * @param record null if the record does not exist
   * @param generation the generation of the store from which the record was read
   * @throws MalformedRecord
   */
  check(name: string, record: { readonly revision: number } | null, generation: string): void {
    const known = generation === this.#generation ? this.#known.get(name)?.revision : undefined;
    if (known === undefined || (record !== null && record.revision >= known)) return;
    const found = record === null ? 'the record is missing' : `the record has revision ${record.revision}`;
    throw new MalformedRecord(
      `${found}, but had revision ${known} before; a Redis client other than the registry may have changed or deleted it`,
    );
  }
}
