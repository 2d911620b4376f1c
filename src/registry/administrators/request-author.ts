import type { FastifyRequest } from 'fastify';
import { actorForm } from '../../rest/actor.js';
import { reasonIn } from '../../rest/reason.js';
import { Refusal } from '../../rest/refusal.js';
import type { Author } from '../events/author.js';
import { clientAddressOf } from '../own-host.js';
import type { Caller } from './caller.js';

/** The author of an event about a request whose caller is unknown. */
const anonymous: Author = {
  ...{ actor: 'unknown', administratorId: null, proof: 'unproven', claimed: null },
  ...{ source: null, requestId: null, reason: null },
};

/**
 * Returns the author of the events that a request causes. @throws Refusal 400 for an invalid `x-reason` or `x-actor`
 */
export function authorOf(request: FastifyRequest): Author {
  const { caller, headers, id } = request;
  if (caller === null) throw new Error('the route is open, so its requests have no author');
  return {
    ...requestOf(request),
    ...{ requestId: id, reason: reasonIn(headers['x-reason']) },
    ...identityOf(caller, headers),
  };
}

/**
 * Returns the author of an event about a request that could not be parsed.
 * @param address the IP address of its connection
 */
export function unreadAuthor(address: string | null): Author {
  return { ...anonymous, source: address };
}

/** Returns the author of an event about a request whose caller is unknown. */
export function unknownAuthor(request: FastifyRequest): Author {
  return { ...anonymous, ...requestOf(request), requestId: request.id };
}

/** Returns the caller of a request. */
export function callerOf({ caller }: FastifyRequest): Caller {
  if (caller === null) throw new Error('the route is open, so its requests have no caller');
  return caller;
}

function identityOf(caller: Caller, headers: FastifyRequest['headers']) {
  const { name, administratorId, proof } = caller;
  return { actor: name, administratorId, proof, claimed: proof === 'bootstrap' ? claimedIn(headers['x-actor']) : null };
}

function requestOf(request: FastifyRequest): Pick<Author, 'source'> {
  return { source: clientAddressOf(request)?.text ?? null };
}

/**
 * Returns the name in `x-actor`, with which a client says who uses the shared token (`registry.tokenFile`). The name is
 * not verified.
 * @throws Refusal 400 for an invalid name
 */
function claimedIn(name: string | readonly string[] | undefined): string | null {
  if (name === undefined || name === '') return null;
  // Node joins repeated headers with a comma, which `actorForm` rejects.
  if (typeof name === 'string' && actorForm.test(name)) return name;
  throw new Refusal(
    400,
    'x-actor must be a name of 1 to 64 letters, digits and . _ @ : + -, and must not contain an API key',
  );
}
