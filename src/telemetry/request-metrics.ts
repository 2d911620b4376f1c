import type { Metric, Registry } from 'prom-client';

/** Options of a duration histogram. */
export interface DurationHistogramOptions {
  readonly name: string;
  readonly help: string;
  /** Name of the single label; null without a label. */
  readonly label: string | null;
  /** Label values whose series exist before their first observation. */
  readonly words?: readonly string[];
  /** Upper bounds in seconds, ascending. */
  readonly buckets: readonly number[];
}

interface Series {
  /** Observations per bucket, not cumulative. The last bucket is above all bounds. */
  readonly counts: number[];
  sum: number;
}

/**
 * A histogram of durations for prom-client's registry. prom-client's own histogram creates and hashes an object of
 * labels for each value, and each request has four values.
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
    // The registry only reads the values of a metric.
    registry.registerMetric(this as unknown as Metric);
    for (const word of label === null ? [''] : words) this.#seriesOf(word);
  }

  /** @param word the label's value, from a bounded set; empty without a label */
  observe(word: string, seconds: number): void {
    const series = this.#seriesOf(word);
    const { counts } = series;
    let bucket = 0;
    while (bucket < this.#buckets.length && seconds > (this.#buckets[bucket] ?? 0)) bucket += 1;
    counts[bucket] = (counts[bucket] ?? 0) + 1;
    series.sum += seconds;
  }

  /** The values observed so far, in the form that prom-client's registry renders. */
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

/** The labels of a request in metrics: only codes and configured names, so that no client can create new series. */
export interface RequestLabels {
  /** `accepted`, a denial code or an error code. */
  readonly code: string;
  readonly status: number;
  /** The route's configured path; `none` without a route. */
  readonly route: string;
}

/** The number of requests with the same labels. */
interface RequestCount extends RequestLabels {
  count: number;
}

/**
 * Counts requests by their labels, in nested maps. Building and hashing a combined name for each request would cost
 * more than all the lookups.
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
