import type { FastifyRequest } from 'fastify';
import { Refusal } from './refusal.js';

/** The form of an actor's name. Events store it permanently, so it must not look like an API key. */
export const actorForm = /^(?!.*svc_(?:live|test)_)[A-Za-z0-9][A-Za-z0-9._@:+-]{0,63}$/i;

/**
 * The actor of a change: `x-actor`, or `admin`. Not authenticated: each holder of the token may use any name. It
 * distinguishes the people and programs that share the token.
 * @throws Refusal for a name that cannot be shown as it is
 */
export function actorOf({ headers }: FastifyRequest): string {
  const actor = headers['x-actor'];
  if (actor === undefined || actor === '') return 'admin';
  // Node joins a repeated header with a comma, which the form rejects.
  if (typeof actor === 'string' && actorForm.test(actor)) return actor;
  throw new Refusal(
    400,
    'x-actor must be a name of 1 to 64 letters, digits and . _ @ : + -, and must not contain an API key',
  );
}
