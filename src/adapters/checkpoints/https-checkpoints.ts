import { Agent, request } from 'undici';
import { connectionProblem } from './connection-problem.js';

/**
 * Options of an HTTPS endpoint that stores checkpoints, such as an append-only archive. A checkpoint is a line with
 * which an auditor can detect later changes of the audit log.
 */
export interface HttpsCheckpointsOptions {
  readonly url: string;
  /** Token of the `authorization: Bearer` header; null: the header is not sent. */
  readonly token: string | null;
  /** PEM of the CA that signed the endpoint's certificate; null: the CAs that Node trusts. */
  readonly ca: Buffer | null;
  /** Timeout for the whole request and response, in milliseconds; default ten seconds. */
  readonly timeoutMilliseconds?: number;
}

const defaultTimeoutMilliseconds = 10_000;
const maxResponseBytes = 128 * 1024;

/**
 * Sends each checkpoint of the audit log with POST to an HTTPS endpoint. A 2xx response means that the checkpoint is
 * stored. Redirects are not followed.
 */
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
   * Sends one checkpoint with POST. Never rejects.
   * @param line one line of JSON
   * @returns why the checkpoint was not stored, for an operator; null if it was stored
   */
  async keep(line: string): Promise<string | null> {
    const signal = AbortSignal.timeout(this.#timeoutMilliseconds); // limits the total time, even if bytes trickle in
    try {
      const { statusCode, body } = await request(this.name, {
        ...{ dispatcher: this.#agent, method: 'POST', headers: this.#headers, body: line, signal },
      });
      await body.dump({ limit: maxResponseBytes, signal });
      return statusCode >= 200 && statusCode <= 299 ? null : `the endpoint responded with status ${statusCode}`;
    } catch (error) {
      return `the endpoint cannot be reached: ${connectionProblem(error)}`;
    }
  }

  /** Aborts pending requests. */
  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}
