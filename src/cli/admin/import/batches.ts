/** Entries that are sent at once, each with its line and its size as JSON. */
export interface SizedEntry {
  readonly line: number;
  readonly value: object;
  readonly bytes: number;
}

/** Below what the registry takes as a body. */
const largestBytes = 800_000;

/** Gathers entries into batches that the registry takes at once. */
export class Batcher<Item extends SizedEntry> {
  readonly #most: number;
  readonly #send: (batch: readonly Item[]) => Promise<void>;
  #batch: Item[] = [];
  #bytes = 0;

  constructor(most: number, send: (batch: readonly Item[]) => Promise<void>) {
    this.#most = most;
    this.#send = send;
  }

  async add(item: Item): Promise<void> {
    if (this.#batch.length === this.#most || this.#bytes + item.bytes > largestBytes) await this.flush();
    this.#batch.push(item);
    this.#bytes += item.bytes + 1;
  }

  /** Sends what is left. */
  async flush(): Promise<void> {
    const batch = this.#batch;
    [this.#batch, this.#bytes] = [[], 0];
    if (batch.length > 0) await this.#send(batch);
  }
}
