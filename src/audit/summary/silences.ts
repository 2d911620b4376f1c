/** A period without log lines about requests. */
export interface Silence {
  /** The minute of the last request before the period (ISO 8601). */
  readonly from: string;
  /** The minute of the first request after the period (ISO 8601). */
  readonly to: string;
  readonly minutes: number;
}

const minute = 60_000;
const shown = 5;

/**
 * Returns the five longest periods without a request, longest first.
 * @param minutes the minutes that have a request, as minutes since 1970, in any order
 */
export function silencesIn(minutes: Iterable<number>): Silence[] {
  const times = Float64Array.from(minutes).sort();
  let longest: Silence[] = [];
  for (let index = 1; index < times.length; index += 1) {
    const [before = 0, behind = 0] = [times[index - 1], times[index]];
    const between = behind - before - 1;
    if (between < 1 || (longest.length === shown && between <= (longest.at(-1)?.minutes ?? 0))) continue;
    const silence = { from: isoOf(before), to: isoOf(behind), minutes: between };
    longest = [...longest, silence].toSorted((a, b) => b.minutes - a.minutes).slice(0, shown);
  }
  return longest;
}

function isoOf(at: number): string {
  return new Date(at * minute).toISOString();
}
