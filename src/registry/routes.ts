import type { FastifyReply } from 'fastify';
import { success } from '../rest/envelope.js';
import type { RestApp } from '../rest/rest-app.js';
import { isForgotten, type Propagation } from './propagation.js';
import type { RegistryContext } from './registry-context.js';

/** Adds the routes of one kind of record. */
export type Routes = (app: RestApp, context: RegistryContext) => void;

/**
 * The answer to a change. One that could not yet be written to the gateways' store, or that a gateway may not know of which
 * nobody can name, is accepted and kept, but whoever waits for a revoked key to stop must not take it for done: 202.
 */
export function answerChange<Data extends object>(
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
