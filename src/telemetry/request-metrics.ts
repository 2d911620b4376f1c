import { Counter, type Metric, type Registry } from 'prom-client';

/** Options of a histogram of durations. */
export interface DurationHistogramOptions {
  readonly name: string;
  readonly help: string;
  /** The name of the only label; null if there is no label. */
  readonly label: string | null;
  /** Label values whose series exist from the start, so that Prometheus sees their first increase. */
  readonly words?: readonly string[];
  /** The upper bounds of the buckets in seconds, ascending. */
  readonly buckets: readonly number[];
}

interface Series {
  /** The number of observations in each bucket, not cumulative. The last bucket counts values above all bounds. */
  readonly counts: number[];
  sum: number;
}

/**
 * A histogram of durations that can be registered with prom-client. The histogram of prom-client is slower, because it
 * creates and hashes an object of labels for each duration. Each request has up to four durations.
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
    // The cast is safe: the registry of prom-client only reads the values of a metric.
    registry.registerMetric(this as unknown as Metric);
    for (const word of label === null ? [''] : words) this.#seriesOf(word);
  }

  /** Adds a duration to the histogram. @param word the label value, from a bounded set; empty if there is no label */
  observe(word: string, seconds: number): void {
    const series = this.#seriesOf(word);
    const { counts } = series;
    let bucket = 0;
    while (bucket < this.#buckets.length && seconds > (this.#buckets[bucket] ?? 0)) bucket += 1;
    counts[bucket] = (counts[bucket] ?? 0) + 1;
    series.sum += seconds;
  }

  /** Returns the values in the form that the registry of prom-client renders. */
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

/**
 * The metric labels of a request. They contain only codes and configured names, so that no client can create new series
 * and exhaust the memory.
 */
export interface RequestLabels {
  /** `accepted`, a denial code or an error code. */
  readonly code: string;
  readonly status: number;
  /** The configured path of the route; `none` if no route matches. */
  readonly route: string;
}

interface RequestCount extends RequestLabels {
  count: number;
}

/**
 * Counts requests by their labels, in nested maps. A single map would need a combined key: building and hashing it for
 * each request takes longer than three map accesses.
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

/** The requests of one merchant. All merchants beyond the limit share one row. */
interface MerchantRow {
  readonly merchantId: string;
  accepted: number;
  refused: number;
}

/**
 * Counts requests by merchant, up to a number of merchants that the operator configures. This bounds the number of
 * metric series.
 */
export class MerchantCounts {
  readonly #most: number;
  readonly #rows = new Map<string, MerchantRow>();
  readonly #others: MerchantRow = { merchantId: 'others', accepted: 0, refused: 0 };

  /** @param most the maximum number of merchants with a row of their own; the first merchants seen get these rows */
  constructor(most: number) {
    this.#most = most;
  }

  add(merchantId: string, isAccepted: boolean): void {
    const row = this.#rows.get(merchantId) ?? this.#addRow(merchantId);
    if (isAccepted) row.accepted += 1;
    else row.refused += 1;
  }

  /** Returns the rows of single merchants, followed by the row of all other merchants. */
  all(): readonly Readonly<MerchantRow>[] {
    return [...this.#rows.values(), this.#others];
  }

  #addRow(merchantId: string): MerchantRow {
    if (this.#rows.size >= this.#most) return this.#others;
    const row = { merchantId, accepted: 0, refused: 0 };
    this.#rows.set(merchantId, row);
    return row;
  }
}

/** Registers the counter of requests by merchant. Its values are read at each scrape. */
export function registerMerchantMetrics(registry: Registry, counts: MerchantCounts): void {
  new Counter({
    name: 'gateway_merchant_requests_total',
    help: 'Requests with a known key, by merchant and result. Up to usage.merchantMetrics merchants are counted individually, and all further merchants together as "others".',
    labelNames: ['merchant_id', 'result'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { merchantId, accepted, refused } of counts.all()) {
        this.inc({ merchant_id: merchantId, result: 'accepted' }, accepted);
        this.inc({ merchant_id: merchantId, result: 'refused' }, refused);
      }
    },
  });
}
