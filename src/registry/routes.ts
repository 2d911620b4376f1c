import type { FastifyReply } from 'fastify';
import { success } from '../rest/envelope.js';
import type { RestApp } from '../rest/rest-app.js';
import { isForgotten, type Propagation } from './propagation.js';
import type { RegistryContext } from './registry-context.js';

/** Adds the routes of one kind of record. */
export type Routes = (app: RestApp, context: RegistryContext) => void;

/**
 * The response to a change. The status is 202 if the change is stored but could not yet be written to the gateways' store, or
 * if an unidentified gateway may not know of it. Clients that wait for a revocation must not treat 202 as in force.
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
