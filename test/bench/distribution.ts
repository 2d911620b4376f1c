/** The distribution of a sample: minimum, percentiles, maximum. */
export interface Distribution {
  readonly min: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}

/** The distribution of these numbers; NaN for an empty sample. */
export function distributionOf(numbers: readonly number[]): Distribution {
  const sorted = numbers.toSorted((a, b) => a - b);
  const at = (share: number): number => round(sorted[Math.min(Math.floor(share * sorted.length), sorted.length - 1)]);
  return { min: at(0), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1) };
}

/** Rounds to hundredths. */
export function round(number = NaN): number {
  return Math.round(number * 100) / 100;
}

/** The distribution as one line of text. */
export function distributionText({ min, p50, p90, p99, max }: Distribution): string {
  return `min ${min}  p50 ${p50}  p90 ${p90}  p99 ${p99}  max ${max}`;
}
