import { setTimeout as delay } from 'node:timers/promises';
import type { RunningGateway } from '../../src/edge/start-gateway.js';

interface Figure {
  readonly name: string;
  readonly values: readonly { readonly value: number }[];
}

/** Connections, and places of requests at upstreams. */
const gauges = ['gateway_connections', 'gateway_upstream_requests_in_flight'];

/**
 * Resolves with what gateways hold of their clients, connections and requests in flight: 0 as soon as that is so, else their
 * number after so many milliseconds.
 */
export async function leftOpen(gateways: readonly RunningGateway[], milliseconds: number): Promise<number> {
  const end = performance.now() + milliseconds;
  for (;;) {
    const figures = (await Promise.all(gateways.map((gateway) => gateway.figures()))).flat() as readonly Figure[];
    const open = figures
      .filter(({ name }) => gauges.includes(name))
      .flatMap(({ values }) => values)
      .reduce((sum, { value }) => sum + value, 0);
    if (open === 0 || performance.now() > end) return open;
    await delay(5);
  }
}
