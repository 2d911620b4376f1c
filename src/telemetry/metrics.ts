import { collectDefaultMetrics, Counter, Gauge, Registry } from 'prom-client';

/** A request as the metrics see it. Codes and configured names alone, so that no caller can make new series. */
export interface RequestLabels {
  /** `accepted`, a denial code or an error code. */
  readonly code: string;
  readonly status: number;
  /** The route's configured path; `none` where there was none. */
  readonly route: string;
}

/** What the gateway counts, in a registry of its own. */
export class GatewayMetrics {
  readonly #registry = new Registry();
  readonly #requests: Counter<keyof RequestLabels | 'environment'>;
  readonly #environment: string;

  constructor(environment: string, isReady: () => boolean) {
    this.#environment = environment;
    collectDefaultMetrics({ register: this.#registry });
    this.#requests = new Counter({
      name: 'gateway_requests_total',
      help: 'Requests by what was decided (accepted, a denial or an error code), status, route and environment.',
      labelNames: ['code', 'status', 'route', 'environment'],
      registers: [this.#registry],
    });
    new Gauge({
      name: 'gateway_ready',
      help: '1 while the gateway is ready for traffic, 0 while it is not.',
      registers: [this.#registry],
      collect() {
        this.set(isReady() ? 1 : 0);
      },
    });
  }

  countRequest(labels: RequestLabels): void {
    this.#requests.inc({ ...labels, environment: this.#environment });
  }

  /** The text format that Prometheus reads, and its content type. */
  async render(): Promise<{ contentType: string; text: string }> {
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }
}
