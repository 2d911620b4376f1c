import type { GatewayErrorCode } from '../../policy/gateway-errors.js';

interface GatewayErrorOptions extends ErrorOptions {
  readonly retryAfterSeconds?: number;
}

/**
 * A failure that ends a request. `code` determines the response. `message` is for operators and is never sent to a
 * client.
 */
export class GatewayError extends Error {
  /** Seconds after which the client should retry; null for the default value of Retry-After. */
  readonly retryAfterSeconds: number | null;

  constructor(
    readonly code: GatewayErrorCode,
    detail: string,
    options?: GatewayErrorOptions,
  ) {
    super(detail, options);
    this.name = 'GatewayError';
    this.retryAfterSeconds = options?.retryAfterSeconds ?? null;
  }
}
