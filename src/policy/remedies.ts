import type { DenialCode } from './decision-table.js';
import type { Code, GatewayErrorCode } from './gateway-errors.js';

/** What the code of a denied or failed request means, and what to do. No response to a client contains these texts. */
export interface Remedy {
  readonly meaning: string;
  readonly remedy: string;
  /** Who has to act. */
  readonly concerns: 'merchant' | 'operator' | 'both';
}

/** The remedies for the rules of the decision table, in its order. */
const ofDenials = {
  https_required: {
    meaning: 'The request came over plain HTTP.',
    remedy:
      'Send the request over HTTPS. Operators: a proxy that terminates TLS must be in trustedProxies and send X-Forwarded-Proto: https.',
    concerns: 'both',
  },
  tor_blocked: {
    meaning: 'The client address is a Tor exit, or Host, Origin or Referer names an onion service.',
    remedy:
      'Call the API by its public host name, from an address that is not a Tor exit. Operators: "merchant-gateway tor-exits check" shows whether an address is listed.',
    concerns: 'both',
  },
  key_required: {
    meaning: 'The header x-api-key is missing or empty.',
    remedy: 'Send the key in the header x-api-key; the gateway reads it nowhere else.',
    concerns: 'merchant',
  },
  key_format: {
    meaning: 'The header x-api-key lacks the prefix of an API key, or was sent more than once.',
    remedy: 'Send one complete key with its prefix svc_live_ or svc_test_, in one header.',
    concerns: 'merchant',
  },
  test_key_in_live: {
    meaning: 'A test key was sent to the live API.',
    remedy: 'Use the live key, or call the sandbox.',
    concerns: 'merchant',
  },
  live_key_in_test: {
    meaning: 'A live key was sent to the sandbox.',
    remedy: 'Use the test key, or call production.',
    concerns: 'merchant',
  },
  key_unknown: {
    meaning: 'The key store has no record of this key.',
    remedy:
      'Check the key for a typing error, or create a new one in the dashboard. Operators: gateways and registry must use the same pepper (keys.pepperFile).',
    concerns: 'both',
  },
  key_inactive: {
    meaning: 'The key was revoked, deactivated or reset, or it has expired.',
    remedy:
      'Use the current key of the merchant, or create a new one. Operators: "merchant-gateway keys list" shows status and expiry.',
    concerns: 'both',
  },
  merchant_inactive: {
    meaning: 'The status of the merchant is not ACTIVE.',
    remedy:
      'Merchants: contact support. Operators: "merchant-gateway merchants set ID --status ACTIVE" activates the merchant.',
    concerns: 'both',
  },
  merchant_not_live: {
    meaning: 'The merchant is not allowed to call production, because go-live is not enabled.',
    remedy:
      'Complete go-live; until then, call the sandbox. Operators: "merchant-gateway merchants set ID --go-live" enables it.',
    concerns: 'both',
  },
  ip_not_allowed: {
    meaning: 'The client address is not on the IP allowlist of the merchant.',
    remedy:
      'Call from an address on the allowlist, or add your address to it. Operators: if the logged address is that of a proxy, list the proxy in trustedProxies.',
    concerns: 'both',
  },
  origin_not_allowed: {
    meaning:
      'The origin of the request is not on the origin allowlist. The origin is taken from the first of these headers that is present: Origin, Referer, Host.',
    remedy:
      'Add this origin to the allowlist. Requests from servers usually have neither Origin nor Referer, so add the value of their Host header.',
    concerns: 'merchant',
  },
  permission_denied: {
    meaning: 'The key lacks the permission for this resource and method.',
    remedy: 'Use another key, or create one with the permission. The permissions of a key cannot be changed.',
    concerns: 'merchant',
  },
} as const satisfies Readonly<Record<DenialCode, Remedy>>;

/**
 * The remedies for the gateway's other errors. Must have the same codes as `gatewayErrors` in policy/gateway-errors.ts.
 */
const ofErrors = {
  malformed_request: {
    meaning: 'The request is not valid HTTP/1.1 (RFC 9112). The key was not checked.',
    remedy:
      'Use a common, current HTTP client. Percent-encode characters beyond ASCII in path and query. A proxy between client and gateway may also damage requests.',
    concerns: 'both',
  },
  invalid_host: {
    meaning: 'Host is missing, repeated or invalid, or contradicts the request target.',
    remedy: 'Send exactly one Host header with the host of the URL.',
    concerns: 'merchant',
  },
  invalid_forwarded_for: {
    meaning: 'A trusted proxy sent an entry in X-Forwarded-For that is not an IP address.',
    remedy:
      'Configure the proxy to overwrite X-Forwarded-For with the IP address of its client, without a port or a name.',
    concerns: 'operator',
  },
  invalid_path: {
    meaning:
      'The path has an empty or dot segment, an encoded slash, backslash or percent sign, or invalid characters. An upstream could map it to another route.',
    remedy:
      'Send the documented path: no empty or dot segments, no encoded slash, backslash or percent sign. Percent-encode any special character as UTF-8.',
    concerns: 'merchant',
  },
  not_found: {
    meaning: 'No route matches the exact path. Requests without a valid key get 401 instead.',
    remedy:
      'Compare the path with the API description, letter by letter. Operators: the configured paths are in the option routes.',
    concerns: 'both',
  },
  method_not_allowed: {
    meaning: 'The path does not support this method.',
    remedy: 'Use one of the methods in the allow header of the response.',
    concerns: 'merchant',
  },
  request_timeout: {
    meaning: 'The request took too long to arrive, or its body arrived too slowly.',
    remedy:
      'Send headers and body without pauses. Operators: see limits.headersTimeoutSeconds, requestTimeoutSeconds and minBodyBytesPerSecond.',
    concerns: 'both',
  },
  body_too_large: {
    meaning: 'The body exceeds limits.bodyBytes.',
    remedy: 'Send less in one request. Operators: raise limits.bodyBytes if the services need larger bodies.',
    concerns: 'both',
  },
  target_too_long: {
    meaning: 'Path and query exceed limits.targetBytes.',
    remedy: 'Send a shorter query. Operators: raise limits.targetBytes if the services need longer ones.',
    concerns: 'both',
  },
  throttled: {
    meaning:
      'This address, or all addresses together, sent too many requests without a valid key. This request would have been denied anyway, or its key is new to the gateway.',
    remedy: 'Correct the key, and wait as many seconds as retry-after says.',
    concerns: 'merchant',
  },
  rate_limited: {
    meaning: 'The merchant sent more requests than rateLimit allows.',
    remedy:
      'Wait as many seconds as retry-after says, and spread requests evenly. Operators: raise rateLimit if needed.',
    concerns: 'both',
  },
  headers_too_large: {
    meaning: 'The header section exceeds limits.headerBytes.',
    remedy: 'Send fewer or shorter headers; cookies are not needed. Operators: see limits.headerBytes.',
    concerns: 'both',
  },
  client_closed: {
    meaning: 'The client disconnected, or the gateway disconnected a slow client. No client receives this error.',
    remedy:
      'Raise the timeout of the client, read responses without delay, and do not pipeline requests. Before you repeat a payout, check whether it was made.',
    concerns: 'merchant',
  },
  internal_error: {
    meaning: 'The gateway failed unexpectedly. Its log has the details.',
    remedy: 'Report the logged error as a bug. Merchants: give the x-request-id of the response to support.',
    concerns: 'operator',
  },
  upstream_failed: {
    meaning: 'The upstream refused, reset or broke the connection, or sent invalid HTTP.',
    remedy:
      'Check the service that the log line names. Merchants: repeat a payout only with the same Idempotency-Key, because the payout may already exist.',
    concerns: 'both',
  },
  tor_list_unavailable: {
    meaning: 'No Tor exit list is recent enough to decide whether the client is a Tor exit.',
    remedy:
      'Check the sources with "merchant-gateway tor-exits status", and load a list with "merchant-gateway tor-exits refresh".',
    concerns: 'operator',
  },
  key_store_unavailable: {
    meaning: 'The key store is unavailable, or a record in it is malformed.',
    remedy:
      'Find the event.reason of the access log line in docs/failure-modes.md. Merchants: retry after as many seconds as retry-after says.',
    concerns: 'operator',
  },
  access_log_unavailable: {
    meaning: 'The access log cannot be written, so requests are rejected.',
    remedy:
      'Free up disk space for the access log, or repair the destination to which it is written. The gateway then resumes by itself.',
    concerns: 'operator',
  },
  overloaded: {
    meaning: 'The gateway is overloaded, or the memory for incomplete request bodies is full.',
    remedy:
      'Wait as long as retry-after says. Send bodies without pauses. Operators: if event.reason mentions bodies, inform the merchant; otherwise add gateways or CPU.',
    concerns: 'both',
  },
  upstream_busy: {
    meaning:
      'The upstream has as many requests in flight as maxInFlight allows, or this merchant has used its fair share of them.',
    remedy:
      'Send fewer requests at once. Operators: find out why the service is slow, or raise maxInFlight of the upstream.',
    concerns: 'both',
  },
  upstream_timeout: {
    meaning: 'The upstream sent nothing for timeoutSeconds, or did not finish within limits.answerTimeoutSeconds.',
    remedy:
      'Find out why the service is slow. Merchants: repeat a payout only with the same Idempotency-Key, because the payout may already exist.',
    concerns: 'both',
  },
} as const satisfies Readonly<Record<GatewayErrorCode, Remedy>>;

/** The remedies of all codes: first the codes of the rules in table order, then the other error codes by status. */
export const remedies: Readonly<Record<Code, Remedy>> = { ...ofDenials, ...ofErrors };

/** Returns the remedy of a code; null for an unknown code, such as `accepted` or a code of a later release. */
export function remedyOf(code: string): Remedy | null {
  return Object.hasOwn(remedies, code) ? remedies[code as Code] : null;
}
