/** A value, and how often it occurred. */
export interface Count {
  readonly value: string;
  readonly count: number;
}

/** Copies a text to save memory: V8 keeps a whole line in memory as long as a substring of it exists. */
export function ownText(text: string): string {
  return Buffer.from(text).toString();
}

/**
 * Counts values in bounded memory. Beyond the limit, all further values share one count: otherwise clients with many
 * addresses could exhaust the memory.
 */
export class Tally {
  readonly #limit: number;
  readonly #counts = new Map<string, number>();
  /** How often values beyond the limit occurred. */
  others = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  add(value: string, times = 1): void {
    const count = this.#counts.get(value);
    if (count !== undefined) this.#counts.set(value, count + times);
    else if (this.#counts.size < this.#limit) this.#counts.set(ownText(value), times);
    else this.others += times;
  }

  /** Returns how often a value occurred; 0 if it never occurred or was beyond the limit. */
  count(value: string): number {
    return this.#counts.get(value) ?? 0;
  }

  /** Number of occurrences of all values, including those beyond the limit. */
  get total(): number {
    let total = this.others;
    for (const count of this.#counts.values()) total += count;
    return total;
  }

  get distinct(): number {
    return this.#counts.size;
  }

  /** Returns the most frequent values; values with the same count are sorted alphabetically. */
  top(most: number): Count[] {
    return [...this.#counts]
      .map(([value, count]) => ({ value, count }))
      .toSorted((a, b) => b.count - a.count || (a.value < b.value ? -1 : 1))
      .slice(0, most);
  }
}
