import type { FastifyReply } from 'fastify';
import { success } from '../rest/envelope.js';
import type { RestApp } from '../rest/rest-app.js';
import { isForgotten, type Propagation } from './propagation.js';
import type { RegistryContext } from './registry-context.js';

/** A function that adds a group of routes to the admin API. */
export type Routes = (app: RestApp, context: RegistryContext) => void;

/**
 * Sets the status of the response to a change, and returns the body. The status is 202 if the change is not yet written
 * to the gateways' store, or if a gateway outside the roster (the list of known gateways) could use old records. After
 * a 202, a client must not assume that a revocation is effective.
 */
export function respondToChange<Data extends object>(
  reply: FastifyReply,
  status: 200 | 201,
  message: string,
  data: Data,
  propagation: Propagation,
) {
  const isOpen = propagation.projected === false || propagation.pending.some(isForgotten);
  reply.code(isOpen ? 202 : status);
  return success(message, { ...data, propagation });
}
