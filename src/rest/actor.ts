import type { FastifyRequest } from 'fastify';
import { Refusal } from './refusal.js';

/** The form of a name in which changes are made. Events keep it for ever, so it is nothing that looks like a key. */
export const actorForm = /^(?!.*svc_(?:live|test)_)[A-Za-z0-9][A-Za-z0-9._@:+-]{0,63}$/i;

/**
 * In whose name a change is made: `x-actor`, or `admin`. Whoever holds the token may say any name; it tells apart the
 * people and programs that share the token.
 * @throws Refusal for a name that could not be shown as it is
 */
export function actorOf({ headers }: FastifyRequest): string {
  const actor = headers['x-actor'];
  if (actor === undefined || actor === '') return 'admin';
  // Node joins a repeated header with a comma, which the form does not admit.
  if (typeof actor === 'string' && actorForm.test(actor)) return actor;
  throw new Refusal(400, 'x-actor must be a name of 1 to 64 letters, digits and . _ @ : + -, and no key');
}
