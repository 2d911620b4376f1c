import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { collectProcessMetrics } from '../telemetry/process-metrics.js';
import type { Build } from '../telemetry/process-metrics.js';
import type { RestApp } from './rest-app.js';

/** Version and configuration digest of the running program, for the metrics. */
export type ApiBuild = Build;

const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

type CounterValues<Label extends string> = readonly {
  readonly labels: Readonly<Record<Label, string>>;
  readonly value: number;
}[];

/**
 * Prometheus metrics of an API, at `/metrics`. The labels of the request metrics are the declared route path, the HTTP
 * method and the status. Each label has few values, so clients cannot fill the memory with new time series. No label
 * contains a merchant or a key.
 */
export class ApiMetrics {
  readonly #registry = new Registry();
  readonly #requests: Counter<'route' | 'method' | 'status'>;
  readonly #durations: Histogram<'route'>;
  #underWay: Promise<string> | null = null;

  /**
   * Adds the route `/metrics`, and counts requests to the routes that are added after this call. Does not count
   * requests to routes without authentication.
   * @param part prefix of the metric names
   */
  constructor(app: RestApp, part: 'registry' | 'services', build?: Build) {
    const registers = [this.#registry];
    collectProcessMetrics(this.#registry, part, build);
    this.#requests = new Counter({
      name: `${part}_requests_total`,
      help: 'Requests, by route ("none" for an unknown path), method and status.',
      labelNames: ['route', 'method', 'status'],
      registers,
    });
    this.#durations = new Histogram({
      name: `${part}_request_duration_seconds`,
      help: 'Seconds from the headers of a request to the end of its response, by route.',
      labelNames: ['route'],
      buckets,
      registers,
    });
    this.count(app);
    app.get('/metrics', { config: { isOpen: true } }, async (_request, reply) => {
      reply.type(this.#registry.contentType);
      return this.#read();
    });
  }

  /**
   * Counts requests to the routes that are added to an app after this call. Does not count requests to routes without
   * authentication.
   */
  count(app: Pick<RestApp, 'addHook'>): void {
    app.addHook('onResponse', (request, reply, done) => {
      const { url, config } = request.routeOptions;
      const route = url ?? request.pathOfOtherMethods ?? 'none';
      if (config.isOpen !== true) {
        this.#requests.inc({ route, method: request.method, status: String(reply.statusCode) });
        this.#durations.observe({ route }, reply.elapsedTime / 1000);
      }
      done();
    });
  }

  /** Adds a gauge whose value is computed on each scrape; the value is NaN if the computation fails. */
  gauge(name: string, help: string, value: () => number | Promise<number>): void {
    new Gauge({
      name,
      help,
      registers: [this.#registry],
      async collect() {
        try {
          this.set(await value());
        } catch {
          this.set(NaN);
        }
      },
    });
  }

  /**
   * Adds a counter whose values are computed on each scrape. If the computation fails, the counter keeps its previous
   * values.
   */
  counter<Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[],
    values: () => CounterValues<Label> | Promise<CounterValues<Label>>,
  ): void {
    new Counter({
      ...{ name, help, labelNames: [...labelNames], registers: [this.#registry] },
      async collect() {
        const computed = await Promise.resolve()
          .then(values)
          .catch(() => null);
        if (computed === null) return;
        this.reset();
        for (const { labels, value } of computed) this.inc(labels, value);
      },
    });
  }

  /**
   * Returns the metrics as text. Concurrent scrapes share one result, because scrapes need no token and each result
   * costs a database query.
   */
  #read(): Promise<string> {
    this.#underWay ??= this.#registry.metrics().finally(() => {
      this.#underWay = null;
    });
    return this.#underWay;
  }
}
