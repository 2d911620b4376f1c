import { denialOf } from '../policy/denials.js';
import type { DenialCode } from '../policy/denials.js';
import { gatewayErrors } from './errors.js';
import type { GatewayErrorCode } from './errors.js';

/** Whatever the gateway answers itself. */
export interface Failure {
  readonly status: number;
  /** The envelope, in ASCII: a character is a byte. */
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Seconds after which a caller may try again, where nobody knows better. */
const defaultRetryAfterSeconds = 1;

/** RFC 9110 11.6.1 asks for a challenge with every 401; there is no registered scheme for a key in a header. */
const challenge = 'ApiKey realm="merchant-api", header="x-api-key"';

/** The answer to a denied request (spec section 7). */
export function denialFailure(code: DenialCode): Failure {
  let made = denialFailures.get(code);
  if (made === undefined) {
    const { status, message } = denialOf(code);
    made = failure(status, message, status === 401 ? { 'www-authenticate': challenge } : {});
    denialFailures.set(code, made);
  }
  return made;
}

/** Each denial is always answered in the same words. */
const denialFailures = new Map<DenialCode, Failure>();

/**
 * The answer to a request that failed otherwise.
 * @param retryAfterSeconds when a caller of whom there is too much may try again
 */
export function errorFailure(code: GatewayErrorCode, retryAfterSeconds: number | null = null): Failure {
  const { status, message } = gatewayErrors[code];
  const mayTryAgain = status === 503 || status === 429;
  const headers = mayTryAgain ? { 'retry-after': String(retryAfterSeconds ?? defaultRetryAfterSeconds) } : {};
  return failure(status, message, headers);
}

function failure(status: number, message: string, headers: Readonly<Record<string, string>>): Failure {
  const body = JSON.stringify({ success: false, message, data: null });
  return {
    status,
    body,
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'content-length': String(body.length),
      'cache-control': 'no-store',
      ...headers,
    },
  };
}
