import http from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import type { Random } from '../fuzz/random.js';
import { call, type Called } from './call.js';
import { callerAddress, type Party } from './deployment.js';
import type { Verdict } from './history.js';
import type { Keys, TestKey } from './keys.js';
import type { History } from './recorder.js';

const verdicts: Readonly<Record<string, Verdict>> = {
  'Invalid API Key': 'unknown',
  'API Key is inactive or revoked': 'inactive',
  'Merchant is not active': 'merchantInactive',
  'IP address not allowed': 'notAllowed',
};
/** Longer than any fault, so that the response of a suspended gateway still arrives after the resume. */
const timeoutMilliseconds = 30_000;
const mostAtOnce = 60;

/** Sends requests with keys of every state to one gateway and records the results. */
export class Requests {
  /** Start time of the newest request that this gateway decided. */
  decidedAt = -Infinity;
  readonly gateway: Party;
  readonly #history: History;
  readonly #agent = new http.Agent({ keepAlive: true, maxSockets: mostAtOnce });
  #underWay = 0;

  constructor(gateway: Party, history: History) {
    this.gateway = gateway;
    this.#history = history;
  }

  /** Sends requests, with pauses, until `isRunning` returns false. */
  async run(keys: Keys, random: Random, pauseMilliseconds: number, isRunning: () => boolean): Promise<void> {
    while (isRunning()) {
      const key = keys.pick(random);
      if (key !== null) await this.ask(key);
      await wait(pauseMilliseconds);
    }
  }

  /** Sends an additional request at once, unless too many are in progress. */
  askBeside(key: TestKey): void {
    if (this.#underWay < mostAtOnce) void this.ask(key);
  }

  async ask({ keyId, merchantId, key }: TestKey): Promise<void> {
    this.#underWay += 1;
    const headers = { 'x-api-key': key, 'x-forwarded-proto': 'https', 'x-forwarded-for': callerAddress };
    const attempt = (): Promise<Called> =>
      call({
        ...{ port: this.gateway.port, method: 'GET', path: '/v1/transactions', headers },
        ...{ agent: this.#agent, timeoutMilliseconds },
      });
    const first = await attempt();
    const { sent, received, status, body } = first.isStale ? await attempt() : first;
    this.#underWay -= 1;
    const verdict = verdictOf(status, body.message ?? '');
    if (verdict !== 'unavailable' && verdict !== 'broken') this.decidedAt = Math.max(this.decidedAt, sent);
    const gateway = this.gateway.name;
    this.#history.add({ kind: 'request', gateway, keyId, merchantId, sent, received, verdict, status });
  }

  close(): void {
    this.#agent.destroy();
  }
}

function verdictOf(status: number | null, message: string): Verdict {
  if (status === null) return 'broken';
  if (status === 503) return 'unavailable';
  return status === 200 ? 'accepted' : (verdicts[message] ?? 'other');
}
