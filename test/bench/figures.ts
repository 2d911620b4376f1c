/** How numbers are spread. */
export interface Distribution {
  readonly min: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}

/** How these numbers are spread; of none, NaN. */
export function distributionOf(numbers: readonly number[]): Distribution {
  const sorted = numbers.toSorted((a, b) => a - b);
  const at = (share: number): number => round(sorted[Math.min(Math.floor(share * sorted.length), sorted.length - 1)]);
  return { min: at(0), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1) };
}

/** To hundredths. */
export function round(number = NaN): number {
  return Math.round(number * 100) / 100;
}

/** One line for people. */
export function distributionText({ min, p50, p90, p99, max }: Distribution): string {
  return `min ${min}  p50 ${p50}  p90 ${p90}  p99 ${p99}  max ${max}`;
}
