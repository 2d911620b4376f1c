import type { ChangedRecords, RecordDifference, StoreEntry, WatchedRecords } from '../../src/gateway/store-ports.js';
import type { MemoryRecordsStore } from './memory-records-store.js';

/** The watch of an in-memory store: the test sends the notices. */
export class MemoryWatch implements WatchedRecords {
  readonly #store: MemoryRecordsStore;
  #changed: string[] = [];
  #isIncomplete = true;
  /** The number of records in each comparison. */
  readonly compared: number[] = [];
  /** Called right after a comparison. */
  onCompared: () => void | Promise<void> = () => undefined;
  isResting = true;

  constructor(store: MemoryRecordsStore) {
    this.#store = store;
  }

  /** Sends notices of changed records. */
  notice(...names: readonly string[]): void {
    this.#changed.push(...names);
  }

  /** Reports that notices were lost. */
  lose(): void {
    this.#isIncomplete = true;
  }

  take(most: number): ChangedRecords {
    const isIncomplete = this.#isIncomplete;
    [this.#isIncomplete, this.isResting] = [false, false];
    return { names: this.#changed.splice(0, most), isIncomplete };
  }

  get isQuiet(): boolean {
    return !this.isResting && !this.#isIncomplete && this.#changed.length === 0;
  }

  next(): Promise<void> {
    return new Promise(() => undefined);
  }

  rest(): void {
    [this.#isIncomplete, this.#changed, this.isResting] = [true, [], true];
  }

  async compare(entries: readonly StoreEntry[]): Promise<{ epoch: number; differences: RecordDifference[] }> {
    this.compared.push(entries.length);
    const differences = entries.flatMap((entry): RecordDifference[] => {
      const stored = this.#store.records.get(entry.name) ?? null;
      if (JSON.stringify(stored) === JSON.stringify(entry.value)) return [];
      return [{ ...entry, isStored: stored !== null, stored, digest: '' }];
    });
    await this.onCompared();
    return { epoch: this.#store.epoch, differences };
  }

  repair(differences: readonly RecordDifference[]): Promise<void> {
    for (const { name, value } of differences) {
      if (value === null) this.#store.records.delete(name);
      else this.#store.records.set(name, value);
    }
    return Promise.resolve();
  }
}
