import { type DenialCode, denials } from './decision-table.js';

interface CodeResponse {
  readonly status: number;
  readonly message: string;
}

/**
 * Status and message of each error that the gateway itself sends, except denials by a rule. No message names a host or
 * a library. `client_closed` is never sent: the access log uses it if the client disconnected or the gateway closed the
 * connection.
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
} as const satisfies Readonly<Record<string, CodeResponse>>;

/** The error code of a failed request in the access log. Codes are stable and never renamed. */
export type GatewayErrorCode = keyof typeof gatewayErrors;

/** The code of a denied or failed request in the access log (`event.code`). */
export type Code = DenialCode | GatewayErrorCode;

const responses = new Map<string, CodeResponse>([
  ...denials.map(({ code, status, message }): [string, CodeResponse] => [code, { status, message }]),
  ...Object.entries(gatewayErrors),
]);

/** Returns status and message of the response with a code; null for an unknown code. */
export function responseOf(code: string): CodeResponse | null {
  return responses.get(code) ?? null;
}
