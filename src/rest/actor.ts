import type { FastifyRequest } from 'fastify';
import { Refusal } from './refusal.js';

/**
 * Pattern for the name of an actor, the person or program that makes a change. Events store the name permanently, so it
 * must not contain anything that looks like an API key.
 */
export const actorForm = /^(?!.*svc_(?:live|test)_)[A-Za-z0-9][A-Za-z0-9._@:+-]{0,63}$/i;

/**
 * Returns the name of the person or program that makes a change: the `x-actor` header, or `admin` without the header.
 * The name is not authenticated, because each client with the token can send any name.
 * @throws Refusal 400 for an invalid name
 */
export function actorOf({ headers }: FastifyRequest): string {
  const actor = headers['x-actor'];
  if (actor === undefined || actor === '') return 'admin';
  // Node joins repeated headers with a comma, which `actorForm` rejects.
  if (typeof actor === 'string' && actorForm.test(actor)) return actor;
  throw new Refusal(
    400,
    'x-actor must be a name of 1 to 64 letters, digits and . _ @ : + -, and must not contain an API key',
  );
}
