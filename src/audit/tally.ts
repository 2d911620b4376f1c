/** A value and how often it came. */
export interface Count {
  readonly value: string;
  readonly count: number;
}

/**
 * Counts values in bounded memory. Beyond its limit, further values are counted together, so that callers who make up
 * addresses without end fill no memory.
 */
export class Tally {
  readonly #limit: number;
  readonly #counts = new Map<string, number>();
  /** Requests with a value that had no room of its own. */
  others = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  add(value: string, times = 1): void {
    const count = this.#counts.get(value);
    if (count !== undefined) this.#counts.set(value, count + times);
    else if (this.#counts.size < this.#limit) this.#counts.set(value, times);
    else this.others += times;
  }

  get distinct(): number {
    return this.#counts.size;
  }

  /** The most frequent values; those that are as frequent by name. */
  top(most: number): Count[] {
    return [...this.#counts]
      .map(([value, count]) => ({ value, count }))
      .toSorted((a, b) => b.count - a.count || (a.value < b.value ? -1 : 1))
      .slice(0, most);
  }
}
