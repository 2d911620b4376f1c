import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { collectProcessMetrics } from '../telemetry/process-metrics.js';
import type { Build } from '../telemetry/process-metrics.js';
import type { RestApp } from './rest-app.js';

/** What runs. */
export type ApiBuild = Build;

const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/**
 * What an API tells of itself to Prometheus, at `/metrics`. Its labels are routes as they are declared, methods and statuses: no
 * caller can make a new series, and none names a merchant or a key.
 */
export class ApiMetrics {
  readonly #registry = new Registry();
  #underWay: Promise<string> | null = null;

  /**
   * Counts the requests to the routes that are added after this, but for those that are open to everybody.
   * @param part what the names of its metrics begin with
   */
  constructor(app: RestApp, part: 'registry' | 'services', build?: Build) {
    const registers = [this.#registry];
    collectProcessMetrics(this.#registry, part, build);
    const requests = new Counter({
      name: `${part}_requests_total`,
      help: 'Requests, by route (none where no route has the path), method and status.',
      labelNames: ['route', 'method', 'status'],
      registers,
    });
    const durations = new Histogram({
      name: `${part}_request_duration_seconds`,
      help: 'Time from the headers of a request to the end of its answer, by route.',
      labelNames: ['route'],
      buckets,
      registers,
    });
    app.addHook('onResponse', (request, reply, done) => {
      const { url: route = 'none', config } = request.routeOptions;
      if (config.isOpen !== true) {
        requests.inc({ route, method: request.method, status: String(reply.statusCode) });
        durations.observe({ route }, reply.elapsedTime / 1000);
      }
      done();
    });
    app.get('/metrics', { config: { isOpen: true } }, async (_request, reply) => {
      reply.type(this.#registry.contentType);
      return this.#read();
    });
  }

  /** Adds a value that is asked for whenever the metrics are; it is NaN where that fails. */
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

  /** Adds a counter whose values are asked for whenever the metrics are. */
  counter<Label extends string>(
    name: string,
    help: string,
    values: () => readonly { readonly labels: Readonly<Record<Label, string>>; readonly value: number }[],
  ): void {
    const labelNames = Object.keys(values()[0]?.labels ?? {});
    new Counter({
      ...{ name, help, labelNames, registers: [this.#registry] },
      collect() {
        this.reset();
        for (const { labels, value } of values()) this.inc(labels, value);
      },
    });
  }

  /** Whoever asks meanwhile gets the same: nobody needs a token, and each time the database is asked. */
  #read(): Promise<string> {
    this.#underWay ??= this.#registry.metrics().finally(() => {
      this.#underWay = null;
    });
    return this.#underWay;
  }
}
