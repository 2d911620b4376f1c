import { Counter, Gauge, Registry } from 'prom-client';
import type { RenderedMetrics } from './aggregate-metrics.js';
import type { CheckpointStatus } from './checkpoints/checkpoint-log.js';
import type { LineSink } from './line-sink.js';
import {
  type CertificateValidity,
  registerCertificateMetrics,
  registerTorExitMetrics,
  type TorExitStats,
} from './part-metrics.js';
import { type Build, collectProcessMetrics } from './process-metrics.js';
import {
  DurationHistogram,
  type DurationHistogramOptions,
  type MerchantCounts,
  registerMerchantMetrics,
  RequestCounts,
} from './request-metrics.js';

/** Durations of a request and of its parts, in milliseconds. */
export interface RequestDurations {
  readonly whole: number;
  readonly decision: number;
  /** The key look-up: `source` is where the record came from, or `unavailable`. Null if no key was looked up. */
  readonly lookup: { readonly source: string; readonly duration: number } | null;
  /** The time until the upstream's response headers arrived; null if there was no upstream response. */
  readonly upstream: { readonly name: string; readonly duration: number } | null;
}

/** The state of the gateway. Its functions are called at each scrape. */
export interface GatewayState {
  readonly isReady: () => boolean;
  readonly keyStoreProblem: () => string | null;
  readonly accessLog: Omit<LineSink, 'write' | 'close'>;
}

const buckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const shortBuckets = [
  0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
];

/** How the values of several processes are combined. */
type Aggregator = 'sum' | 'min' | 'max';

const readyMetric = {
  name: 'gateway_ready',
  help: '1 while the gateway is ready for traffic, 0 while it is not.',
  aggregator: 'min',
} as const;

/** Returns the readiness metric for a worker process that cannot report its own metrics. */
export function readinessMetric(isReady: boolean): object {
  return { ...readyMetric, type: 'gauge', values: [{ value: Number(isReady), labels: {} }] };
}

/** The Prometheus metrics of the gateway, in their own registry of prom-client. */
export class GatewayMetrics {
  readonly #registry = new Registry();
  readonly requests = new RequestCounts();
  readonly #whole: DurationHistogram;
  readonly #decision: DurationHistogram;
  readonly #lookup: DurationHistogram;
  readonly #upstream: DurationHistogram;
  readonly #refusedConnections: Counter<'reason'>;
  readonly #tlsReloads: Counter<'result'>;

  /** @param refusals all reasons for which a connection can be rejected */
  constructor(environment: string, state: GatewayState, refusals: readonly string[] = [], build?: Build) {
    const registers = [this.#registry];
    collectProcessMetrics(this.#registry, 'gateway', build);
    const { requests } = this;
    new Counter({
      name: 'gateway_requests_total',
      help: 'Requests by decision (accepted, a denial or an error code), status, route and environment.',
      labelNames: ['code', 'status', 'route', 'environment'],
      registers,
      collect() {
        this.reset();
        for (const { code, status, route, count } of requests.all())
          this.inc({ code, status, route, environment }, count);
      },
    });
    this.#refusedConnections = new Counter({
      name: 'gateway_connections_refused_total',
      help: 'Connections rejected or closed by the gateway, by reason.',
      labelNames: ['reason'],
      registers,
    });
    this.#tlsReloads = new Counter({
      name: 'gateway_tls_reloads_total',
      help: 'Reloads of certificates and TLS session ticket keys, by result: replaced, or refused (the previous ones stay in use).',
      labelNames: ['result'],
      registers,
    });
    // Creates all series with the value 0. If a series began with its first event, Prometheus would see no increase.
    for (const reason of refusals) this.#refusedConnections.inc({ reason }, 0);
    for (const result of ['replaced', 'refused']) this.#tlsReloads.inc({ result }, 0);
    this.#whole = this.#histogram({
      name: 'gateway_request_duration_seconds',
      help: 'Seconds from the headers of a request to the end of its response, by route.',
      label: 'route',
      buckets,
    });
    this.#decision = this.#histogram({
      name: 'gateway_decision_duration_seconds',
      help: 'Seconds from the headers of a request to the decision, including the key lookup.',
      label: null,
      buckets: shortBuckets,
    });
    this.#lookup = this.#histogram({
      name: 'gateway_key_lookup_duration_seconds',
      help: 'Duration of key lookups in seconds, by source of the record: store, cache, stale (cached, while Redis is unavailable), or unavailable.',
      label: 'source',
      words: ['store', 'cache', 'stale', 'unavailable'],
      buckets: shortBuckets,
    });
    this.#upstream = this.#histogram({
      name: 'gateway_upstream_duration_seconds',
      help: 'Seconds from sending a request to the upstream until its response headers arrived, by upstream.',
      label: 'upstream',
      buckets,
    });
    this.#addState(state);
  }

  /**
   * Adds a gauge whose value is read at each scrape.
   * @param aggregator how the values of several processes are combined
   */
  gauge(name: string, help: string, value: () => number, aggregator: Aggregator = 'sum'): void {
    new Gauge({
      name,
      help,
      aggregator,
      registers: [this.#registry],
      collect() {
        this.set(value());
      },
    });
  }

  /**
   * Adds a gauge with one series per label value. The label values must be a bounded set. All values are read at each
   * scrape.
   */
  gaugeByWord(name: string, help: string, label: string, values: () => Readonly<Record<string, number>>): void {
    new Gauge({
      name,
      help,
      labelNames: [label],
      registers: [this.#registry],
      collect() {
        for (const [word, value] of Object.entries(values())) this.set({ [label]: word }, value);
      },
    });
  }

  /** Adds a counter with one series per label value. All values are read at each scrape. */
  counterByWord(name: string, help: string, label: string, values: () => Readonly<Record<string, number>>): void {
    new Counter({
      name,
      help,
      labelNames: [label],
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const [word, value] of Object.entries(values())) this.inc({ [label]: word }, value);
      },
    });
  }

  /** Adds the counter of requests by merchant. Its values are read at each scrape. */
  showMerchants(counts: MerchantCounts): void {
    registerMerchantMetrics(this.#registry, counts);
  }

  observeDurations(route: string, { whole, decision, lookup, upstream }: RequestDurations): void {
    this.#whole.observe(route, whole / 1000);
    this.#decision.observe('', decision / 1000);
    if (lookup !== null) this.#lookup.observe(lookup.source, lookup.duration / 1000);
    if (upstream !== null) this.#upstream.observe(upstream.name, upstream.duration / 1000);
  }

  /** Counts a rejected connection. @param reason one of the `refusals` that the constructor received */
  countRefusedConnection(reason: string): void {
    this.#refusedConnections.inc({ reason });
  }

  countTlsReload(result: 'replaced' | 'refused'): void {
    this.#tlsReloads.inc({ result });
  }

  /** Adds the metrics of the TLS certificates in use. All values are read at each scrape. */
  showCertificates(current: () => Iterable<CertificateValidity>): void {
    registerCertificateMetrics(this.#registry, current);
  }

  /** Adds the metrics of the Tor exit list. All values are read at each scrape. */
  watchTorExits(stats: () => TorExitStats): void {
    registerTorExitMetrics(this.#registry, stats);
  }

  /** Returns the metrics in Prometheus' text format, and the content type of that format. */
  async render(): Promise<RenderedMetrics> {
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }

  /** Returns the metrics in the form that `aggregateMetrics` combines. */
  metricObjects(): Promise<readonly object[]> {
    return this.#registry.getMetricsAsJSON();
  }

  #histogram(options: DurationHistogramOptions): DurationHistogram {
    return new DurationHistogram(options, this.#registry);
  }

  #addState({ isReady, keyStoreProblem, accessLog }: GatewayState): void {
    this.gauge(readyMetric.name, readyMetric.help, () => Number(isReady()), readyMetric.aggregator);
    this.gauge(
      'gateway_key_store_available',
      '1 while keys can be looked up, 0 while the key store is unavailable.',
      () => Number(keyStoreProblem() === null),
      'min',
    );
    this.gauge(
      'gateway_access_log_failing',
      '1 while lines of the access log cannot be written, or the destination is too slow; otherwise 0.',
      () => Number(accessLog.problem() !== null),
      'max',
    );
    this.gauge('gateway_access_log_held_bytes', 'Bytes of access log lines waiting to be written.', () =>
      accessLog.heldBytes(),
    );
    this.counter(
      'gateway_access_log_lines_lost_total',
      'Access log lines lost because the memory buffer was full.',
      () => accessLog.lost(),
    );
    this.counter(
      'gateway_access_log_foreign_bytes_total',
      'Bytes that another process has written to the access log. Expected to stay 0.',
      () => accessLog.foreignBytes(),
    );
    this.#addCheckpoints(() => accessLog.checkpoints?.() ?? null);
  }

  #addCheckpoints(status: () => CheckpointStatus | null): void {
    this.gauge(
      'gateway_access_log_checkpoints_failing',
      '1 while a destination rejects signed checkpoints of the access log, or has accepted none for too long.',
      () => Number((status()?.problem ?? null) !== null),
      'max',
    );
    this.counter(
      'gateway_access_log_checkpoints_total',
      'Signed checkpoints of the access log that were written to a destination, summed over all destinations.',
      () => status()?.kept ?? 0,
    );
    this.gauge(
      'gateway_access_log_checkpoint_age_seconds',
      'Seconds since the newest checkpoint at a destination was signed. Of several destinations, the one furthest behind counts.',
      () => (status()?.ageMilliseconds ?? 0) / 1000,
      'max',
    );
    this.gauge(
      'gateway_access_log_receipts_failing',
      '1 while the registry signs no receipts for checkpoints of the access log, signs them late, or has lost checkpoints.',
      () => Number((status()?.receipts?.problem ?? null) !== null),
      'max',
    );
    this.counter(
      'gateway_access_log_receipts_total',
      'Checkpoints of the access log for which the registry signed a receipt.',
      () => status()?.receipts?.kept ?? 0,
    );
    this.gauge(
      'gateway_access_log_receipt_age_seconds',
      'Seconds since the newest checkpoint with a receipt was signed.',
      () => (status()?.receipts?.ageMilliseconds ?? 0) / 1000,
      'max',
    );
  }

  /** Adds a counter whose value is read at each scrape. */
  counter(name: string, help: string, value: () => number): void {
    new Counter({
      name,
      help,
      registers: [this.#registry],
      collect() {
        this.reset();
        this.inc(value());
      },
    });
  }
}
