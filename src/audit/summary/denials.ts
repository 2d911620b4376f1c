import { ownText } from './tally.js';

/** Denied requests in one time span: one count per series of the chart. */
interface DenialSpan {
  /** Start of the span (ISO 8601). */
  readonly from: string;
  readonly counts: readonly number[];
}

/** Denied requests over time, by denial code. */
export interface Denials {
  /** The six most frequent denial codes, and `others` if there are more. */
  readonly series: readonly string[];
  readonly spans: readonly DenialSpan[];
}

const minute = 60_000;
const mostSeries = 6;
const mostBuckets = 2_000;
const mostCodes = 100;
/**
 * Possible lengths of a counted time bucket, in minutes. Each length divides every longer span of the chart
 * (`spanLengths` in summary.ts). So whole buckets can be merged into a span.
 */
const lengths = [1, 5, 15, 60, 360, 1440];

/**
 * Counts denied requests over time by denial code, in bounded memory. The longer the log, the longer are its time
 * buckets: from one minute to one day.
 */
export class DenialsOverTime {
  #minutes = 1;
  /** Whether a limit was reached. If so, some codes were counted without their name, or some buckets were dropped. */
  isIncomplete = false;
  #buckets = new Map<number, Map<string, number>>();

  /** Counts denied requests with a code. @param at in minutes since 1970 */
  add(at: number, code: string, times: number): void {
    const bucket = this.#bucket(Math.floor(at / this.#minutes));
    const name = bucket.has(code) || bucket.size < mostCodes ? code : '';
    this.isIncomplete ||= name !== code;
    const count = bucket.get(name);
    bucket.set(count === undefined ? ownText(name) : name, (count ?? 0) + times);
    if (this.#buckets.size > mostBuckets) this.#coarsen();
  }

  /**
   * Returns the counts.
   * @param codes the denial codes, most frequent first
   * @param spans the time spans of the chart, without gaps
   */
  end(codes: readonly string[], spans: readonly { readonly from: string }[], spanMinutes: number): Denials {
    const named = codes.slice(0, mostSeries);
    const series = codes.length > named.length ? [...named, 'others'] : named;
    const first = Date.parse(spans[0]?.from ?? '') / minute / spanMinutes;
    const counts = spans.map(({ from }) => ({ from, counts: series.map(() => 0) }));
    for (const [at, bucket] of this.#buckets) {
      const span = counts[Math.floor((at * this.#minutes) / spanMinutes) - first]?.counts;
      if (span === undefined) continue;
      for (const [code, times] of bucket) {
        const index = named.includes(code) ? named.indexOf(code) : series.length - 1;
        span[index] = (span[index] ?? 0) + times;
      }
    }
    return { series, spans: counts };
  }

  #bucket(at: number): Map<string, number> {
    let bucket = this.#buckets.get(at);
    if (bucket === undefined) this.#buckets.set(at, (bucket = new Map<string, number>()));
    return bucket;
  }

  /**
   * Merges the buckets into longer buckets. Buckets of the maximum length, a day, cannot be merged. Lines with forged
   * times could create any number of day buckets. So beyond 20,000 buckets, the bucket that was added last is dropped.
   */
  #coarsen(): void {
    const longer = lengths.find((length) => length > this.#minutes);
    if (longer === undefined) {
      if (this.#buckets.size <= mostBuckets * 10) return;
      this.#buckets.delete([...this.#buckets.keys()].at(-1) ?? 0);
      this.isIncomplete = true;
      return;
    }
    const before = this.#buckets;
    const factor = longer / this.#minutes;
    this.#minutes = longer;
    this.#buckets = new Map();
    for (const [at, counts] of before) {
      const bucket = this.#bucket(Math.floor(at / factor));
      for (const [code, times] of counts) bucket.set(code, (bucket.get(code) ?? 0) + times);
    }
  }
}
