import { setTimeout as wait } from 'node:timers/promises';
import type { Deployment, GatewayProcess } from '../deployment/deployment.js';
import { openFixedRate } from './load/fixed-rate.js';

/** Requests per connection that start after the revocation returned. */
const requestsAfter = 2;

/**
 * Sends requests with one key through all gateways. Each connection pauses after a response (0 ms: no pause) and
 * repeats.
 */
export class Load {
  readonly #accepted: number[];
  readonly #loops: Promise<void>[];
  readonly #counts = { before: 0, after: 0, honoured: 0 };
  readonly #connections: number;
  readonly #pauseMilliseconds: number;
  #returned = Infinity;

  constructor(gateways: readonly GatewayProcess[], connections: number, key: string, pauseMilliseconds: number) {
    this.#connections = connections;
    this.#pauseMilliseconds = pauseMilliseconds;
    this.#accepted = gateways.map(() => 0);
    this.#loops = gateways.flatMap((gateway, index) =>
      Array.from({ length: connections }, () => this.#ask(gateway, index, key)),
    );
  }

  /** Resolves when each gateway has accepted the key in as many requests as it has connections. */
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
      if (this.#pauseMilliseconds > 0) await wait(this.#pauseMilliseconds);
    }
  }
}

/** Length in seconds of one run of the background requests. Runs follow each other until `end` is called. */
const besideSeconds = 0.5;
/** Number of connections to each gateway for the background requests. */
const besideConnections = 16;

/** Background load: requests with a valid key, and changes of a merchant, at fixed rates. */
export class Beside {
  readonly #loops: Promise<unknown>[] = [];
  #isOver = false;
  #requests = 0;
  #changes = 0;

  /**
   * Starts the load. Both rates are per second; `requestRate` is the total for all gateways. A rate of 0 means no load
   * of that kind.
   */
  static async begin({
    deployment: { admin },
    gateways,
    merchantId,
    requestRate,
    changeRate,
  }: {
    readonly deployment: Pick<Deployment, 'admin'>;
    readonly gateways: readonly GatewayProcess[];
    readonly merchantId: string;
    readonly requestRate: number;
    readonly changeRate: number;
  }): Promise<Beside> {
    const beside = new Beside();
    const { data } = await admin('POST', `/merchants/${merchantId}/keys`, { environment: 'live' });
    const request = `GET /v1/transactions HTTP/1.1\r\nhost: localhost\r\nx-api-key: ${String(data.key)}\r\n\r\n`;
    if (requestRate > 0) {
      for (const { target } of gateways) {
        const load = await openFixedRate(target, besideConnections, requestRate / gateways.length);
        beside.#loops.push(
          beside
            .#repeat(async () => {
              const { requests } = await load.run({ next: () => request, status: 200, seconds: besideSeconds });
              beside.#requests += requests;
            })
            .finally(() => {
              load.close();
            }),
        );
      }
    }
    if (changeRate > 0) beside.#loops.push(beside.#change(admin, changeRate));
    return beside;
  }

  async end(): Promise<{ besideRequests: number; besideChanges: number }> {
    this.#isOver = true;
    await Promise.all(this.#loops);
    return { besideRequests: this.#requests, besideChanges: this.#changes };
  }

  async #repeat(act: () => Promise<void>): Promise<void> {
    while (!this.#isOver) await act();
  }

  async #change(admin: Deployment['admin'], rate: number): Promise<void> {
    const { data } = await admin('POST', '/merchants', { name: 'Beside', status: 'ACTIVE', goLive: true });
    const asked: Promise<unknown>[] = [];
    await this.#repeat(async () => {
      this.#changes += 1;
      asked.push(admin('PATCH', `/merchants/${String(data.id)}`, { name: `Beside ${this.#changes}` }));
      await wait(1000 / rate);
    });
    await Promise.all(asked);
  }
}
