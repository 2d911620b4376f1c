import type { GatewayError } from './errors.js';

/** Ends a request before its upstream has answered; lighter than an AbortController, of which each request would need one. */
export class Cancellation {
  /** Why; null while nobody has cancelled. */
  reason: GatewayError | null = null;
  #listener: ((reason: GatewayError) => void) | null = null;

  cancel(reason: GatewayError): void {
    if (this.reason !== null) return;
    this.reason = reason;
    this.#listener?.(reason);
  }

  /** Sets who is told, at once where it is cancelled already. There is one at a time. */
  listen(listener: (reason: GatewayError) => void): void {
    this.#listener = listener;
    if (this.reason !== null) listener(this.reason);
  }
}
