import { createHmac } from 'node:crypto';
import { Agent, request } from 'undici';
import { connectionProblem } from '../checkpoints/connection-problem.js';

/** Options of an endpoint that receives webhooks. */
export interface HttpsWebhookOptions {
  readonly url: string;
  /** The secrets, newest first; two during a rotation. Each message is signed with every secret. */
  readonly secrets: readonly Buffer[];
  /** The clock, in milliseconds since 1970. */
  readonly now: () => number;
  /** Timeout for the whole request and response, in milliseconds; default ten seconds. */
  readonly timeoutMilliseconds?: number;
}

const defaultTimeoutMilliseconds = 10_000;
const maxResponseBytes = 16 * 1024;

/**
 * Sends messages as Standard Webhooks: signed POST requests. A 2xx response accepts a message. Follows no redirects.
 */
export class HttpsWebhook {
  readonly #options: HttpsWebhookOptions;
  readonly #agent: Agent;
  readonly #timeoutMilliseconds: number;

  constructor(options: HttpsWebhookOptions) {
    this.#options = options;
    this.#timeoutMilliseconds = options.timeoutMilliseconds ?? defaultTimeoutMilliseconds;
    this.#agent = new Agent({
      ...{ connections: 4, maxHeaderSize: maxResponseBytes, headersTimeout: this.#timeoutMilliseconds },
      connect: { timeout: this.#timeoutMilliseconds, rejectUnauthorized: true },
    });
  }

  /**
   * Sends one message. Never rejects.
   * @returns why the endpoint did not accept the message, for an operator; null if it was accepted
   */
  async send({ id, body }: { readonly id: string; readonly body: string }): Promise<string | null> {
    const { url, secrets, now } = this.#options;
    const timestamp = String(Math.floor(now() / 1_000));
    const signatures = secrets.map((secret) => {
      const digest = createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest('base64');
      return `v1,${digest}`;
    });
    const headers = {
      ...{ 'content-type': 'application/json', 'user-agent': 'merchant-gateway' },
      ...{ 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signatures.join(' ') },
    };
    const signal = AbortSignal.timeout(this.#timeoutMilliseconds); // limits the total time, even if bytes trickle in
    try {
      const response = await request(url, { dispatcher: this.#agent, method: 'POST', headers, body, signal });
      await response.body.dump({ limit: maxResponseBytes, signal });
      const { statusCode } = response;
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
