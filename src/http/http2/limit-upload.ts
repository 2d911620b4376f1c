import { GatewayError } from '../errors.js';
import type { Exchange } from '../exchange.js';

/** Ends an HTTP/2 request whose body has not arrived in time, as Node does on HTTP/1.1: a trickle would hold its place. */
export function limitUpload(exchange: Exchange, timeoutSeconds: number): void {
  if (!exchange.hasBody) return;
  const deadline = setTimeout(() => {
    if (exchange.request.complete) return;
    exchange.cancellation.cancel(
      new GatewayError('request_timeout', `the body did not arrive within ${timeoutSeconds} s`),
    );
  }, timeoutSeconds * 1000);
  exchange.whenOver(() => {
    clearTimeout(deadline);
  });
}
