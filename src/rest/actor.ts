import type { FastifyRequest } from 'fastify';
import { Refusal } from './refusal.js';

/**
 * Pattern for the name of an actor, the person or program that makes a change. Events store the name permanently, so it
 * must not contain anything that looks like an API key.
 */
export const actorForm = /^(?!.*svc_(?:live|test)_)[A-Za-z0-9][A-Za-z0-9._@:+-]{0,63}$/i;

/**
 * Returns the name in `x-actor`, with which a client says who uses a shared token. Null if the header is missing or
 * empty. The name is not authenticated: several clients share the token, and each of them can send any name.
 * @throws Refusal 400 for an invalid name
 */
export function actorIn({ headers }: FastifyRequest): string | null {
  const actor = headers['x-actor'];
  if (actor === undefined || actor === '') return null;
  // Node joins repeated headers with a comma, which `actorForm` rejects.
  if (typeof actor === 'string' && actorForm.test(actor)) return actor;
  throw new Refusal(
    400,
    'x-actor must begin with a letter or a digit, have 1 to 64 letters, digits and . _ @ : + -, and contain no API key',
  );
}
