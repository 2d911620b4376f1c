/** An entry to import, with its line number and the size of its JSON in bytes. */
export interface SizedEntry {
  readonly line: number;
  readonly value: object;
  readonly bytes: number;
}

/** Maximum size of a batch in bytes of JSON. It is below the body limit of the registry. */
const maxBytes = 800_000;

/** Groups entries into batches that the limits of the registry allow, and sends them. */
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
    if (this.#batch.length === this.#most || this.#bytes + item.bytes > maxBytes) await this.flush();
    this.#batch.push(item);
    this.#bytes += item.bytes + 1;
  }

  /** Sends the current batch, even if it is not full. */
  async flush(): Promise<void> {
    const batch = this.#batch;
    [this.#batch, this.#bytes] = [[], 0];
    if (batch.length > 0) await this.#send(batch);
  }
}
