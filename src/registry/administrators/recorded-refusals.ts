import type { FastifyRequest } from 'fastify';
import type { Refusal } from '../../rest/refusal.js';
import { holdsApiKey } from '../fields.js';
import type { Attempts } from './attempts.js';
import { RefusedRight } from './refused-right.js';
import { refusedAuthorOf } from './request-author.js';
import { tokenPrefix } from './token-text.js';

/**
 * Stores an event about a refused request. After many refusals, only counts the request. Returns the refusal, which the
 * caller of this function throws.
 * @param needs what the caller lacks, such as a permission
 */
export async function recordRefusal(
  request: FastifyRequest,
  needs: string,
  refusal: Refusal,
  attempts: Attempts,
): Promise<Refusal> {
  const { method, routeOptions, params } = request;
  const given = JSON.stringify(params);
  const isSecret = holdsApiKey(given) || given.includes(tokenPrefix);
  const after = { method, route: routeOptions.url ?? '', params: isSecret ? null : params, needs };
  await attempts.refusedRequest(after, refusal.code ?? '', refusedAuthorOf(request));
  return refusal;
}

/**
 * Runs an operation, and returns its result. On a RefusedRight, stores an event about the refused request, then
 * rethrows the error.
 */
export async function recordingRefusals<Result>(
  request: FastifyRequest,
  attempts: Attempts,
  act: () => Promise<Result>,
): Promise<Result> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof RefusedRight) await recordRefusal(request, error.needs, error, attempts);
    throw error;
  }
}
