import type { Random } from '../fuzz/random.js';

/** A key created by the workload. */
export interface TestKey {
  readonly keyId: string;
  readonly merchantId: string;
  readonly key: string;
}

const mostRecent = 8;
const mostEnded = 30;
const othersOnceIn = 4;

/** The keys for requests: valid keys and some ended keys. At least one request in four uses a recently changed key. */
export class Keys {
  readonly #all: TestKey[] = [];
  readonly #ended: TestKey[] = [];
  readonly #recent: TestKey[] = [];
  readonly #others: TestKey[] = [];

  /** Adds keys that no change affects. */
  addOthers(keys: readonly TestKey[]): void {
    this.#others.push(...keys);
  }

  add(key: TestKey): void {
    this.#all.push(key);
    this.touch(key);
  }

  /** Marks a key as ended, or possibly ended. */
  end(key: TestKey): void {
    if (!this.#ended.includes(key)) this.#ended.push(key);
    this.touch(key);
    const oldest = this.#ended.length > mostEnded ? this.#ended.shift() : undefined;
    const index = oldest === undefined ? -1 : this.#all.indexOf(oldest);
    if (index !== -1) this.#all.splice(index, 1);
  }

  touch(key: TestKey): void {
    this.#recent.push(key);
    if (this.#recent.length > mostRecent) this.#recent.shift();
  }

  pick(random: Random): TestKey | null {
    if (this.#others.length > 0 && random.oneIn(othersOnceIn)) return random.pick(this.#others);
    const from = random.oneIn(3) && this.#recent.length > 0 ? this.#recent : this.#all;
    return from.length === 0 ? null : random.pick(from);
  }
}
