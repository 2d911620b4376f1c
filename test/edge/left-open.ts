import { setTimeout as delay } from 'node:timers/promises';
import type { RunningGateway } from '../../src/edge/start-gateway.js';

interface Metric {
  readonly name: string;
  readonly values: readonly { readonly value: number }[];
}

/** The gauges of open connections and of requests in flight to upstreams. */
const gauges = ['gateway_connections', 'gateway_upstream_requests_in_flight'];

/**
 * Waits until gateways have no open connections and no requests in flight.
 * @returns 0 once that is so; otherwise how many there are after this number of milliseconds
 */
export async function leftOpen(gateways: readonly RunningGateway[], milliseconds: number): Promise<number> {
  const end = performance.now() + milliseconds;
  for (;;) {
    const metrics = (await Promise.all(gateways.map((gateway) => gateway.metricObjects()))).flat() as readonly Metric[];
    const open = metrics
      .filter(({ name }) => gauges.includes(name))
      .flatMap(({ values }) => values)
      .reduce((sum, { value }) => sum + value, 0);
    if (open === 0 || performance.now() > end) return open;
    await delay(5);
  }
}
