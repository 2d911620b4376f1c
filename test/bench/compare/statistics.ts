/** Median, minimum and maximum of a sample. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** The quantile of sorted numbers for a share from 0 to 1; NaN for an empty sample. */
export function quantileOf(sorted: readonly number[], share: number): number {
  return sorted[Math.min(Math.floor(share * sorted.length), sorted.length - 1)] ?? NaN;
}

/** Median, minimum and maximum; NaN for an empty sample. */
export function spreadOf(numbers: readonly number[]): Spread {
  const sorted = numbers.toSorted((a, b) => a - b);
  const half = (sorted.length - 1) / 2;
  const median = ((sorted[Math.floor(half)] ?? NaN) + (sorted[Math.ceil(half)] ?? NaN)) / 2;
  return { median, min: sorted[0] ?? NaN, max: sorted.at(-1) ?? NaN };
}

/**
 * The spread of the ratios of one subject to another. Each ratio compares figures of the same round, because a
 * temporary disturbance of the machine affects both subjects in that round.
 */
export function ratiosOf(ones: readonly number[], others: readonly number[]): Spread {
  return spreadOf(ones.map((one, round) => one / (others[round] ?? NaN)));
}
