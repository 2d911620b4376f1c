import { Refusal } from '../../rest/refusal.js';
import { ProviderError } from './provider.js';

/** Returns the error if it is a ProviderError; rethrows any other error. */
export function asProblem(error: unknown): ProviderError {
  if (error instanceof ProviderError) return error;
  throw error;
}

/** Throws the refusal for an unavailable provider. Rethrows the error unchanged if it is no ProviderError. */
export function unavailable(error: unknown): never {
  asProblem(error);
  throw unavailableRefusal();
}

/** Creates a 503: the provider is unavailable, or rejects the registry's own configuration. */
export function unavailableRefusal(): Refusal {
  return new Refusal(
    503,
    'The OpenID provider cannot be used now: try again later. If this lasts, check the log of the registry',
    [],
    'provider_unavailable',
  );
}

/** Creates a 409: another request is refreshing the sign-in, or has just refreshed it. */
export function refreshRunning(): Refusal {
  return new Refusal(
    409,
    'Another request is refreshing this sign-in, or has just refreshed it: use the new token from that request',
    [],
    'refresh_running',
  );
}

/** Creates a 403: the provider or the registry does not accept the person. */
export function denied(): Refusal {
  return new Refusal(
    403,
    'The OpenID provider or the registry did not accept the sign-in: the event sign-in.failed has the cause',
    [],
    'access_denied',
  );
}

/** Creates a 400: the device code is no longer valid. */
export function expired(): Refusal {
  return new Refusal(400, 'The code has expired: sign in again', [], 'expired_token');
}

/** Creates a 401: the person must sign in again. */
export function ended(): Refusal {
  return new Refusal(401, 'The sign-in has ended: sign in again', [], 'sign_in_ended');
}
