import { Agent, request } from 'undici';
import { connectionProblem } from './connection-problem.js';

/** Options of an HTTPS endpoint that stores checkpoints, e.g. an append-only archive. */
export interface HttpsCheckpointsOptions {
  readonly url: string;
  /** Sent as `authorization: Bearer`; null: no token. */
  readonly token: string | null;
  /** PEM of the CA for the endpoint's certificate; null: the CAs that Node trusts. */
  readonly ca: Buffer | null;
  /** Timeout for the whole exchange, in milliseconds; default ten seconds. */
  readonly timeoutMilliseconds?: number;
}

const defaultTimeoutMilliseconds = 10_000;
const maxResponseBytes = 128 * 1024;

/** Posts each checkpoint to an HTTPS endpoint. A 2xx response confirms storage. Does not follow redirects. */
export class HttpsCheckpoints {
  readonly name: string;
  readonly #agent: Agent;
  readonly #headers: Record<string, string>;
  readonly #timeoutMilliseconds: number;

  constructor({ url, token, ca, timeoutMilliseconds = defaultTimeoutMilliseconds }: HttpsCheckpointsOptions) {
    [this.name, this.#timeoutMilliseconds] = [url, timeoutMilliseconds];
    this.#headers = {
      'content-type': 'application/json',
      'user-agent': 'merchant-gateway',
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    };
    this.#agent = new Agent({
      connections: 1,
      connect: { timeout: timeoutMilliseconds, rejectUnauthorized: true, ...(ca === null ? {} : { ca }) },
    });
  }

  /**
   * Posts one checkpoint. Never rejects.
   * @param line one line of JSON
   * @returns the reason of a failure, for an operator; null if stored
   */
  async keep(line: string): Promise<string | null> {
    const signal = AbortSignal.timeout(this.#timeoutMilliseconds); // bounds the whole exchange: a response that trickles would reset idle timeouts
    try {
      const { statusCode, body } = await request(this.name, {
        ...{ dispatcher: this.#agent, method: 'POST', headers: this.#headers, body: line, signal },
      });
      await body.dump({ limit: maxResponseBytes, signal });
      return statusCode >= 200 && statusCode <= 299 ? null : `the endpoint responds with ${statusCode}`;
    } catch (error) {
      return `the endpoint cannot be reached: ${connectionProblem(error)}`;
    }
  }

  /** Aborts pending requests. */
  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}
