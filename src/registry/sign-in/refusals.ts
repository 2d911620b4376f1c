import { Refusal } from '../../rest/refusal.js';
import { ProviderError } from './provider.js';

/** Returns the error of the provider; throws any other error again. */
export function asProblem(error: unknown): ProviderError {
  if (error instanceof ProviderError) return error;
  throw error;
}

/** Throws the refusal for a provider that is away. */
export function unavailable(error: unknown): never {
  asProblem(error);
  throw unavailableRefusal();
}

/** 503: the provider is away, or rejects the registry itself. */
export function unavailableRefusal(): Refusal {
  return new Refusal(503, 'The OpenID provider is unavailable: try again later', [], 'provider_unavailable');
}

/** 409: another request has just refreshed the sign-in. */
export function refreshRunning(): Refusal {
  return new Refusal(409, 'Another request refreshes this sign-in: read the token file again', [], 'refresh_running');
}

/** 403: the provider or the registry does not accept the person. */
export function denied(): Refusal {
  return new Refusal(403, 'The sign-in was not accepted', [], 'access_denied');
}

/** 400: the device code is no longer valid. */
export function expired(): Refusal {
  return new Refusal(400, 'The code has expired: sign in again', [], 'expired_token');
}

/** 401: the person must sign in again. */
export function ended(): Refusal {
  return new Refusal(401, 'The sign-in has ended: sign in again', [], 'sign_in_ended');
}
