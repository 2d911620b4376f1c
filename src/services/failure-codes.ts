import type { Problem } from '../rest/envelope.js';

/** A failure of the services: its status, its documented meaning, and the parts of an example response. */
interface FailureCode {
  readonly status: number;
  readonly meaning: string;
  readonly message: string;
  readonly problems?: readonly Problem[];
  readonly details?: Readonly<Record<string, string>>;
  /**
   * True: only operations that list the code in their `codes` can return it. The `idempotency_` codes are an exception:
   * each POST can return them. Absent: all operations that can return `status` can also return the code.
   */
  readonly isSpecial?: true;
}

/** The problem of a payout that exceeds the balance of its wallet. */
export const insufficientBalance = { path: 'amount', message: 'Insufficient wallet balance' };
const noWallet = {
  path: 'currency',
  message:
    'There is no default wallet in NGN for the live environment: ask your provider to create one (currency NGN, environment live)',
};
/** The problem of an idempotency key that another request has used. */
export const keyReused = {
  path: 'Idempotency-Key',
  message: 'This Idempotency-Key was used for another request: use a different key for each request',
};
const missing = { path: 'amount', message: 'amount is required' };

/** Failure codes of the services, sent as `data.code`. docs/services.md documents them, and they are never renamed. */
const failureCodes = {
  bad_request: {
    status: 400,
    meaning: 'the path or the head of the request is malformed',
    message: 'Bad request',
  },
  forbidden: {
    status: 403,
    meaning: 'the request did not come from the gateway; merchants never receive this code',
    message: 'Forbidden',
  },
  not_found: {
    status: 404,
    meaning: 'the record does not exist, or belongs to another merchant or environment',
    message: 'Wallet not found',
  },
  route_not_found: {
    status: 404,
    meaning: 'the path does not exist',
    message: 'Route not found',
    isSpecial: true,
  },
  method_not_allowed: {
    status: 405,
    meaning: 'the path does not support this method; the `allow` header lists the supported methods',
    message: 'Method not allowed: this path takes GET, HEAD, POST',
  },
  request_timeout: {
    status: 408,
    meaning: 'the request did not arrive in time',
    message: 'Request Timeout',
  },
  email_taken: {
    status: 409,
    meaning: 'another customer has the email address',
    message: 'A customer with this email already exists',
    isSpecial: true,
  },
  idempotency_in_progress: {
    status: 409,
    meaning: 'a request with this `Idempotency-Key` is still being carried out: retry after `retry-after` seconds',
    message: 'A request with this Idempotency-Key is still being carried out: try again',
    isSpecial: true,
  },
  reference_taken: {
    status: 409,
    meaning: 'a payout with this `reference` already exists: `data.payoutId` is the id of that payout',
    message: 'A payout with this reference already exists',
    details: { payoutId: '0b8f6f0e-4c9b-4a35-9b52-3a4d5f6e7a80' },
    isSpecial: true,
  },
  body_too_large: { status: 413, meaning: 'the body is larger than 1 MiB', message: 'The body is too large' },
  unsupported_media_type: {
    status: 415,
    meaning: 'the body is not `application/json`, or it is compressed',
    message: 'Content-Type must be application/json',
  },
  idempotency_key_reused: {
    status: 422,
    meaning: 'this `Idempotency-Key` was used for another request',
    message: keyReused.message,
    problems: [keyReused],
    isSpecial: true,
  },
  insufficient_balance: {
    status: 422,
    meaning: 'the wallet holds less than the amount',
    message: insufficientBalance.message,
    problems: [insufficientBalance],
    isSpecial: true,
  },
  no_default_wallet: {
    status: 422,
    meaning: 'the merchant has no default wallet in the currency: `message` says what to ask the provider for',
    message: noWallet.message,
    problems: [noWallet],
    isSpecial: true,
  },
  validation_failed: {
    status: 422,
    meaning: 'invalid fields, query parameters or JSON: `data.errors` lists every problem',
    message: missing.message,
    problems: [missing],
  },
  headers_too_large: {
    status: 431,
    meaning: 'the head of the request exceeds `limits.headerBytes` by more than 16 KiB',
    message: 'Request Header Fields Too Large',
  },
  internal_error: { status: 500, meaning: 'an unexpected error', message: 'Internal error' },
  service_unavailable: {
    status: 503,
    meaning: 'the database is unavailable, or this process is stopping: retry after `retry-after` seconds',
    message: 'Service unavailable',
  },
} as const satisfies Readonly<Record<string, FailureCode>>;

/** The stable code of a failure of the services. */
export type ServiceFailureCode = keyof typeof failureCodes;

/** The failure codes and their details, in the order of the documentation. */
export const failureCodeEntries = Object.entries(failureCodes) as readonly [ServiceFailureCode, FailureCode][];
