import { setTimeout as delay } from 'node:timers/promises';
import type { RunningGateway } from '../../src/http/start-gateway.js';

interface Figure {
  readonly name: string;
  readonly values: readonly { readonly value: number }[];
}

/** Resolves with the connections that gateways have open: 0 as soon as that is so, else those after so many milliseconds. */
export async function leftOpen(gateways: readonly RunningGateway[], milliseconds: number): Promise<number> {
  const end = performance.now() + milliseconds;
  for (;;) {
    const figures = (await Promise.all(gateways.map((gateway) => gateway.figures()))).flat() as readonly Figure[];
    const open = figures
      .filter(({ name }) => name === 'gateway_connections')
      .flatMap(({ values }) => values)
      .reduce((sum, { value }) => sum + value, 0);
    if (open === 0 || performance.now() > end) return open;
    await delay(5);
  }
}
