/** The middle of some figures, and how far they reach. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** The value below which this share of the sorted numbers is; of none, NaN. */
export function quantileOf(sorted: readonly number[], share: number): number {
  return sorted[Math.min(Math.floor(share * sorted.length), sorted.length - 1)] ?? NaN;
}

/** Median, least and greatest; of none, NaN. */
export function spreadOf(numbers: readonly number[]): Spread {
  const sorted = numbers.toSorted((a, b) => a - b);
  const half = (sorted.length - 1) / 2;
  const median = ((sorted[Math.floor(half)] ?? NaN) + (sorted[Math.ceil(half)] ?? NaN)) / 2;
  return { median, min: sorted[0] ?? NaN, max: sorted.at(-1) ?? NaN };
}

/** How one compares with another, round by round: what disturbs the machine for a while disturbs both. */
export function ratiosOf(ones: readonly number[], others: readonly number[]): Spread {
  return spreadOf(ones.map((one, round) => one / (others[round] ?? NaN)));
}
