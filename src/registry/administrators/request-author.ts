import type { FastifyRequest } from 'fastify';
import { actorIn } from '../../rest/actor.js';
import { reasonIn } from '../../rest/reason.js';
import { Refusal } from '../../rest/refusal.js';
import type { Author } from '../events/author.js';
import { clientAddressOf } from '../own-host.js';
import type { Caller } from './caller.js';
import { RefusedRight } from './refused-right.js';

/** The author of an event about a request whose caller is unknown. */
const anonymous: Author = {
  ...{ actor: 'unknown', administratorId: null, proof: 'unproven', claimed: null },
  ...{ source: null, requestId: null, reason: null },
};

/**
 * Returns the author of the events that a request causes. If a right of the caller is not yet checked, call this inside
 * `recordingRefusals`. Otherwise a caller without the right could avoid the event by sending an invalid header.
 * @throws RefusedRight 400 for an invalid `x-reason` or `x-actor`
 */
export function authorOf(request: FastifyRequest): Author {
  return authorWith(request, refusedIfInvalid);
}

/**
 * Returns the author of the event about a refused request. An invalid `x-reason` or `x-actor` counts as missing.
 * Otherwise, a client could avoid the events by sending an invalid header with each refused request.
 */
export function refusedAuthorOf(request: FastifyRequest): Author {
  return authorWith(request, nullIfInvalid);
}

/**
 * Returns the author of an event about a request that could not be parsed.
 * @param address the IP address of the request's connection; null if unknown
 */
export function unreadAuthor(address: string | null): Author {
  return { ...anonymous, source: address };
}

/** Returns the author of an event about a request whose caller is unknown. */
export function unknownAuthor(request: FastifyRequest): Author {
  return { ...anonymous, source: sourceOf(request), requestId: request.id };
}

/** Returns the caller of a request. */
export function callerOf({ caller }: FastifyRequest): Caller {
  if (caller === null) throw new Error('the route is open, so its requests have no caller');
  return caller;
}

/** @param valueOf returns the value of an optional header, given the function that reads the header */
function authorWith(request: FastifyRequest, valueOf: (read: () => string | null) => string | null): Author {
  const { name, administratorId, proof, merchantId } = callerOf(request);
  return {
    ...{ source: sourceOf(request), requestId: request.id },
    reason: valueOf(() => reasonIn(request.headers['x-reason'])),
    ...{ actor: name, administratorId, proof, ...(merchantId === null ? {} : { memberOf: merchantId }) },
    claimed: proof === 'bootstrap' ? valueOf(() => actorIn(request)) : null,
  };
}

function refusedIfInvalid(read: () => string | null): string | null {
  try {
    return read();
  } catch (error) {
    if (error instanceof Refusal) throw new RefusedRight('a valid x-reason or x-actor', error);
    throw error;
  }
}

function nullIfInvalid(read: () => string | null): string | null {
  try {
    return read();
  } catch (error) {
    if (error instanceof Refusal) return null;
    throw error;
  }
}

function sourceOf(request: FastifyRequest): string | null {
  return clientAddressOf(request)?.text ?? null;
}
