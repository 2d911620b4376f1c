/**
 * What callers see of the failures that the gateway answers itself, apart from denials. None names a machine or a library.
 * `client_closed` is seen by nobody; it is the log's name for a caller who hung up, or was cut off.
 */
export const gatewayErrors = {
  malformed_request: { status: 400, message: 'Malformed HTTP request' },
  invalid_host: { status: 400, message: 'Invalid Host header' },
  invalid_forwarded_for: { status: 400, message: 'Invalid X-Forwarded-For header' },
  invalid_path: { status: 400, message: 'Invalid request path' },
  not_found: { status: 404, message: 'Not found' },
  method_not_allowed: { status: 405, message: 'Method not allowed' },
  request_timeout: { status: 408, message: 'Request timeout' },
  body_too_large: { status: 413, message: 'Request body too large' },
  target_too_long: { status: 414, message: 'Request target too long' },
  throttled: { status: 429, message: 'Too many requests' },
  rate_limited: { status: 429, message: 'Too many requests' },
  headers_too_large: { status: 431, message: 'Request header fields too large' },
  client_closed: { status: 499, message: 'Client closed request' },
  internal_error: { status: 500, message: 'Internal error' },
  upstream_failed: { status: 502, message: 'Bad gateway' },
  tor_list_unavailable: { status: 503, message: 'Service temporarily unavailable' },
  key_store_unavailable: { status: 503, message: 'Service temporarily unavailable' },
  access_log_unavailable: { status: 503, message: 'Service temporarily unavailable' },
  overloaded: { status: 503, message: 'Service temporarily unavailable' },
  upstream_busy: { status: 503, message: 'Service temporarily unavailable' },
  upstream_timeout: { status: 504, message: 'Gateway timeout' },
} as const;

/** The stable name of a failure, as it stands in the access log. Never renamed. */
export type GatewayErrorCode = keyof typeof gatewayErrors;

interface GatewayErrorOptions extends ErrorOptions {
  readonly retryAfterSeconds?: number;
}

/** A failure that ends a request: the code decides what the caller sees, `message` is what operators see. */
export class GatewayError extends Error {
  /** When the caller may try again, in seconds; null where nobody knows better than the default. */
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
