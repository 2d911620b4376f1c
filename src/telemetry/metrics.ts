import { Counter, Gauge, Registry } from 'prom-client';
import type { RenderedMetrics } from './aggregate-figures.js';
import type { CheckpointFigures } from './checkpoint-log.js';
import type { LineSink } from './line-sink.js';
import {
  type CertificateFigures,
  registerCertificateMetrics,
  registerTorExitMetrics,
  type TorExitFigures,
} from './part-metrics.js';
import { type Build, collectProcessMetrics } from './process-metrics.js';
import {
  DurationHistogram,
  type DurationHistogramOptions,
  RequestCounts,
  type RequestLabels,
} from './request-metrics.js';

/** How long a request and its parts took, in milliseconds. */
export interface RequestDurations {
  readonly whole: number;
  readonly decision: number;
  /** The look-up of its key: how the record came to be known, or `unavailable`. Null where there was none. */
  readonly lookup: { readonly source: string; readonly duration: number } | null;
  /** Until the headers of its upstream's answer. Null where there were none. */
  readonly upstream: { readonly name: string; readonly duration: number } | null;
}

/** What the gateway is asked about when the metrics are read. */
export interface GatewayState {
  readonly isReady: () => boolean;
  readonly keyStoreProblem: () => string | null;
  readonly accessLog: Omit<LineSink, 'write' | 'close'>;
}

const buckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const shortBuckets = [
  0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
];

/** What is made of the values of several processes. */
type Aggregator = 'sum' | 'min' | 'max';

const readyFigure = {
  name: 'gateway_ready',
  help: '1 while the gateway is ready for traffic, 0 while it is not.',
  aggregator: 'min',
} as const;

/** What stands in the figures for a process that tells none. */
export function figureOfReadiness(isReady: boolean): object {
  return { ...readyFigure, type: 'gauge', values: [{ value: Number(isReady), labels: {} }] };
}

/** What the gateway counts, in a registry of its own. */
export class GatewayMetrics {
  readonly #registry = new Registry();
  readonly #requests = new RequestCounts();
  readonly #whole: DurationHistogram;
  readonly #decision: DurationHistogram;
  readonly #lookup: DurationHistogram;
  readonly #upstream: DurationHistogram;
  readonly #refusedConnections: Counter<'reason'>;
  readonly #tlsReloads: Counter<'result'>;

  /** @param refusals every reason for which a connection may be refused */
  constructor(environment: string, state: GatewayState, refusals: readonly string[] = [], build?: Build) {
    const registers = [this.#registry];
    collectProcessMetrics(this.#registry, 'gateway', build);
    const requests = this.#requests;
    new Counter({
      name: 'gateway_requests_total',
      help: 'Requests by what was decided (accepted, a denial or an error code), status, route and environment.',
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
      help: 'Connections that were closed for what they did or failed to do, by reason.',
      labelNames: ['reason'],
      registers,
    });
    this.#tlsReloads = new Counter({
      name: 'gateway_tls_reloads_total',
      help: 'Changes of certificates and ticket keys: replaced, or refused and the ones before kept.',
      labelNames: ['result'],
      registers,
    });
    // Prometheus sees no increase where a series begins with its first event.
    for (const reason of refusals) this.#refusedConnections.inc({ reason }, 0);
    for (const result of ['replaced', 'refused']) this.#tlsReloads.inc({ result }, 0);
    this.#whole = this.#histogram({
      name: 'gateway_request_duration_seconds',
      help: 'Time from the headers of a request to the end of its answer, by route.',
      label: 'route',
      buckets,
    });
    this.#decision = this.#histogram({
      name: 'gateway_decision_duration_seconds',
      help: 'Time from the headers of a request to the decision, the look-up of its key included.',
      label: null,
      buckets: shortBuckets,
    });
    this.#lookup = this.#histogram({
      name: 'gateway_key_lookup_duration_seconds',
      help: 'Look-ups of keys, by how the record was known: store, cache, stale, or unavailable.',
      label: 'source',
      words: ['store', 'cache', 'stale', 'unavailable'],
      buckets: shortBuckets,
    });
    this.#upstream = this.#histogram({
      name: 'gateway_upstream_duration_seconds',
      help: "Time until the headers of an upstream's answer, by upstream.",
      label: 'upstream',
      buckets,
    });
    this.#addState(state);
  }

  /**
   * Adds a value that is asked for whenever the metrics are.
   * @param aggregator what is made of the values of several processes
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

  /** Adds values, one for each word of a set that does not grow, that are asked for whenever the metrics are. */
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

  /** The same of what only grows. */
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

  countRequest(labels: RequestLabels): void {
    this.#requests.add(labels);
  }

  observeDurations(route: string, { whole, decision, lookup, upstream }: RequestDurations): void {
    this.#whole.observe(route, whole / 1000);
    this.#decision.observe('', decision / 1000);
    if (lookup !== null) this.#lookup.observe(lookup.source, lookup.duration / 1000);
    if (upstream !== null) this.#upstream.observe(upstream.name, upstream.duration / 1000);
  }

  /** @param reason one of a fixed set of words */
  countRefusedConnection(reason: string): void {
    this.#refusedConnections.inc({ reason });
  }

  countTlsReload(result: 'replaced' | 'refused'): void {
    this.#tlsReloads.inc({ result });
  }

  /** Adds the metrics of the certificates in use, which are asked for whenever they are. */
  showCertificates(current: () => Iterable<CertificateFigures>): void {
    registerCertificateMetrics(this.#registry, current);
  }

  /** Adds the metrics of the list of Tor exits, which is asked whenever they are. */
  watchTorExits(figures: () => TorExitFigures): void {
    registerTorExitMetrics(this.#registry, figures);
  }

  /** The text format that Prometheus reads, and its content type. */
  async render(): Promise<RenderedMetrics> {
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }

  /** The same, as `aggregateFigures` takes it. */
  figures(): Promise<readonly object[]> {
    return this.#registry.getMetricsAsJSON();
  }

  #histogram(options: DurationHistogramOptions): DurationHistogram {
    return new DurationHistogram(options, this.#registry);
  }

  #addState({ isReady, keyStoreProblem, accessLog }: GatewayState): void {
    this.gauge(readyFigure.name, readyFigure.help, () => Number(isReady()), readyFigure.aggregator);
    this.gauge(
      'gateway_key_store_available',
      '1 while keys can be looked up, 0 while nothing can be asked.',
      () => Number(keyStoreProblem() === null),
      'min',
    );
    this.gauge(
      'gateway_access_log_failing',
      '1 while lines of the access log cannot be written or fall behind.',
      () => Number(accessLog.problem() !== null),
      'max',
    );
    this.gauge('gateway_access_log_held_bytes', 'Bytes of lines that wait to be written.', () => accessLog.heldBytes());
    this.counter('gateway_access_log_lines_lost_total', 'Lines that had no room in memory, and are gone.', () =>
      accessLog.lost(),
    );
    this.counter('gateway_access_log_foreign_bytes_total', 'Bytes in the access log that something else wrote.', () =>
      accessLog.foreignBytes(),
    );
    this.#addCheckpoints(() => accessLog.checkpoints?.() ?? null);
  }

  #addCheckpoints(figures: () => CheckpointFigures | null): void {
    this.gauge(
      'gateway_access_log_checkpoints_failing',
      '1 while signed checkpoints of the access log cannot be written, or come late.',
      () => Number((figures()?.problem ?? null) !== null),
      'max',
    );
    this.counter(
      'gateway_access_log_checkpoints_total',
      'Signed checkpoints of the access log that were written.',
      () => figures()?.kept ?? 0,
    );
    this.gauge(
      'gateway_access_log_checkpoint_age_seconds',
      'Seconds since the newest checkpoint that was written was signed.',
      () => (figures()?.ageMilliseconds ?? 0) / 1000,
      'max',
    );
  }

  /** Adds a value that only grows, which is asked for whenever the metrics are. */
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
