import { setTimeout as wait } from 'node:timers/promises';
import type { GatewayProcess } from './deployment.js';

/** Requests that have begun after a revocation returned, for each connection. */
const requestsAfter = 2;

/** Requests with one key through every gateway at once, each connection asking again as soon as it has its answer. */
export class Load {
  readonly #accepted: number[];
  readonly #loops: Promise<void>[];
  readonly #counts = { before: 0, after: 0, honoured: 0 };
  readonly #connections: number;
  #returned = Infinity;

  constructor(gateways: readonly GatewayProcess[], connections: number, key: string) {
    this.#connections = connections;
    this.#accepted = gateways.map(() => 0);
    this.#loops = gateways.flatMap((gateway, index) =>
      Array.from({ length: connections }, () => this.#ask(gateway, index, key)),
    );
  }

  /** Settles when each gateway has accepted the key on as many requests as it has connections. */
  async untilAccepted(): Promise<void> {
    while (this.#accepted.some((count) => count < this.#connections)) await wait(1);
  }

  async end(returned: number) {
    this.#returned = returned;
    await Promise.all(this.#loops);
    return this.#counts;
  }

  async #ask(gateway: GatewayProcess, index: number, key: string): Promise<void> {
    for (let after = 0; after < requestsAfter;) {
      const begun = performance.now();
      const isAfter = begun > this.#returned;
      const status = await gateway.ask(key);
      if (status === 200) this.#accepted[index] = (this.#accepted[index] ?? 0) + 1;
      if (isAfter) {
        after += 1;
        this.#counts.after += 1;
        if (status === 200) this.#counts.honoured += 1;
      } else if (status === 200) this.#counts.before += 1;
    }
  }
}
