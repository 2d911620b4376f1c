import type { ConnectionOptions } from 'node:tls';
import { Agent, request } from 'undici';
import { connectionProblem } from '../checkpoints/connection-problem.js';

/** Options of `OperatorsClient`, a client for the part of the services' API that operators use. */
export interface OperatorsClientOptions {
  /** Returns the URL of the operators' API; null while it is not known. */
  readonly url: () => string | null;
  /** How the API's certificate is verified; null: with the CAs that Node trusts. */
  readonly trust: Pick<ConnectionOptions, 'ca' | 'checkServerIdentity' | 'allowPartialTrustChain'> | null;
  /** Timeout for the whole request and response, in milliseconds; default ten seconds. */
  readonly timeoutMilliseconds?: number;
}

const defaultTimeoutMilliseconds = 10_000;
const maxHeadBytes = 16 * 1024;
const maxBodyBytes = 1024 * 1024;
const maxConnections = 16;

/** Sends requests to the operators' API of the services. It follows no redirect, and repeats no request. */
export class OperatorsClient {
  readonly #options: OperatorsClientOptions;
  readonly #agent: Agent;
  readonly #timeoutMilliseconds: number;

  constructor(options: OperatorsClientOptions) {
    this.#options = options;
    this.#timeoutMilliseconds = options.timeoutMilliseconds ?? defaultTimeoutMilliseconds;
    this.#agent = new Agent({
      ...{ connections: maxConnections, maxHeaderSize: maxHeadBytes, headersTimeout: this.#timeoutMilliseconds },
      connect: { timeout: this.#timeoutMilliseconds, rejectUnauthorized: true, ...this.#options.trust },
    });
  }

  /**
   * Sends one request. Never rejects.
   * @returns the response, or the problem in words if there is no response; `text` is null if the response body is too
   * large
   */
  async send(asked: {
    readonly method: 'GET' | 'POST';
    readonly path: string;
    readonly token: string;
    readonly reason: string | null;
    readonly body: string | null;
  }): Promise<{ readonly status: number; readonly text: string | null } | { readonly problem: string }> {
    const { method, path, token, reason, body } = asked;
    const url = this.#options.url();
    if (url === null) return { problem: 'not started yet' };
    const headers = {
      ...{ authorization: `Bearer ${token}`, accept: 'application/json', 'user-agent': 'merchant-gateway' },
      ...(body === null ? {} : { 'content-type': 'application/json' }),
      ...(reason === null ? {} : { 'x-reason': reason }),
    };
    const signal = AbortSignal.timeout(this.#timeoutMilliseconds); // limits the total time, even if bytes trickle in
    try {
      const at = `${url.replace(/\/+$/, '')}${path}`;
      const response = await request(at, { dispatcher: this.#agent, method, headers, body, signal });
      return { status: response.statusCode, text: await limitedText(response.body) };
    } catch (error) {
      return { problem: connectionProblem(error) };
    }
  }

  /** Aborts pending requests. */
  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

/** Reads a body as text. If it is too large, returns null and closes the connection. */
async function limitedText(body: AsyncIterable<Buffer>): Promise<string | null> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.byteLength;
    if (size > maxBodyBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
