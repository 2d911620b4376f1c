/** A period without the line of a request. */
export interface Silence {
  /** The minute of the last line before it, ISO 8601. */
  readonly from: string;
  /** The minute of the first line after it, ISO 8601. */
  readonly to: string;
  readonly minutes: number;
}

const minute = 60_000;
const shown = 5;

/**
 * The five longest periods without the line of a request, longest first.
 * @param minutes the minutes with a request, in minutes since 1970, in any order
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
