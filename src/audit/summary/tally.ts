/** A value and its number of occurrences. */
export interface Count {
  readonly value: string;
  readonly count: number;
}

/** Copies a text: a substring of a line would retain the whole line in memory. */
export function ownText(text: string): string {
  return Buffer.from(text).toString();
}

/**
 * Counts values in bounded memory. Beyond its limit, new values are counted together, so that callers with invented
 * addresses cannot exhaust memory.
 */
export class Tally {
  readonly #limit: number;
  readonly #counts = new Map<string, number>();
  /** Occurrences of values beyond the limit. */
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

  /** Occurrences of a value; 0 if it was beyond the limit. */
  count(value: string): number {
    return this.#counts.get(value) ?? 0;
  }

  /** Occurrences of all values. */
  get total(): number {
    let total = this.others;
    for (const count of this.#counts.values()) total += count;
    return total;
  }

  get distinct(): number {
    return this.#counts.size;
  }

  /** The most frequent values; equal counts in order of the value. */
  top(most: number): Count[] {
    return [...this.#counts]
      .map(([value, count]) => ({ value, count }))
      .toSorted((a, b) => b.count - a.count || (a.value < b.value ? -1 : 1))
      .slice(0, most);
  }
}
