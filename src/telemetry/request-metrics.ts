import type { Metric, Registry } from 'prom-client';

/** What a histogram is called, and how it is divided. */
export interface DurationHistogramOptions {
  readonly name: string;
  readonly help: string;
  /** Its one label; null where it has none. */
  readonly label: string | null;
  /** Values of the label that are there before the first of them is observed. */
  readonly words?: readonly string[];
  /** Upper bounds in seconds, ascending. */
  readonly buckets: readonly number[];
}

interface Series {
  /** How many fell into each bucket and not into the one before; the last is for those above all bounds. */
  readonly counts: number[];
  sum: number;
}

/**
 * Durations, counted by buckets, as prom-client's registry asks for them. prom-client's own histogram makes and hashes an
 * object of labels for each value, and a request has four of them.
 */
export class DurationHistogram {
  readonly name: string;
  readonly help: string;
  readonly type = 'histogram';
  readonly aggregator = 'sum';
  readonly #label: string | null;
  readonly #buckets: readonly number[];
  readonly #series = new Map<string, Series>();

  constructor({ name, help, label, words = [], buckets }: DurationHistogramOptions, registry: Registry) {
    this.name = name;
    this.help = help;
    this.#label = label;
    this.#buckets = buckets;
    // The registry asks a metric for what it holds, and for nothing else.
    registry.registerMetric(this as unknown as Metric);
    for (const word of label === null ? [''] : words) this.#seriesOf(word);
  }

  /** @param word the label's value, one of a bounded set; empty where there is no label */
  observe(word: string, seconds: number): void {
    const series = this.#seriesOf(word);
    const { counts } = series;
    let bucket = 0;
    while (bucket < this.#buckets.length && seconds > (this.#buckets[bucket] ?? 0)) bucket += 1;
    counts[bucket] = (counts[bucket] ?? 0) + 1;
    series.sum += seconds;
  }

  /** What has been observed so far, as prom-client's registry writes it out. */
  get(): object {
    const values: { metricName: string; labels: Record<string, string | number>; value: number }[] = [];
    for (const [word, { counts, sum }] of this.#series) {
      const own = this.#label === null ? {} : { [this.#label]: word };
      let count = 0;
      for (const [index, inBucket] of counts.entries()) {
        count += inBucket;
        const le = this.#buckets[index] ?? '+Inf';
        values.push({ metricName: `${this.name}_bucket`, labels: { le, ...own }, value: count });
      }
      values.push({ metricName: `${this.name}_sum`, labels: own, value: sum });
      values.push({ metricName: `${this.name}_count`, labels: own, value: count });
    }
    const { name, help, type, aggregator } = this;
    return { name, help, type, aggregator, values };
  }

  #seriesOf(word: string): Series {
    let series = this.#series.get(word);
    if (series === undefined) {
      series = { counts: Array.from({ length: this.#buckets.length + 1 }, () => 0), sum: 0 };
      this.#series.set(word, series);
    }
    return series;
  }
}

/** A request as the metrics see it. Codes and configured names alone, so that no caller can make new series. */
export interface RequestLabels {
  /** `accepted`, a denial code or an error code. */
  readonly code: string;
  readonly status: number;
  /** The route's configured path; `none` where there was none. */
  readonly route: string;
}

/** How many requests there were with the same labels. */
interface RequestCount extends RequestLabels {
  count: number;
}

/**
 * Counts requests by their labels. By one after the other: a name made of all of them would have to be made, and hashed,
 * for each request, which costs more than all the look-ups.
 */
export class RequestCounts {
  readonly #counts: RequestCount[] = [];
  readonly #byRoute = new Map<string, Map<string, Map<number, RequestCount>>>();

  add({ route, code, status }: RequestLabels): void {
    const counted = this.#byRoute.get(route)?.get(code)?.get(status);
    if (counted === undefined) this.#addFirst({ route, code, status, count: 1 });
    else counted.count += 1;
  }

  all(): readonly Readonly<RequestCount>[] {
    return this.#counts;
  }

  #addFirst(first: RequestCount): void {
    const byCode = this.#byRoute.get(first.route) ?? new Map<string, Map<number, RequestCount>>();
    const byStatus = byCode.get(first.code) ?? new Map<number, RequestCount>();
    this.#byRoute.set(first.route, byCode.set(first.code, byStatus.set(first.status, first)));
    this.#counts.push(first);
  }
}
