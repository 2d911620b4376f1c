import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { asListenError } from '../../config/operator-error.js';

/** Where a listener is wanted. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/**
 * Has an application listen.
 * @param name of the listener in the configuration
 * @throws OperatorError for a port that is taken
 */
export async function listen(app: FastifyInstance, name: string, at: ListenAddress): Promise<AddressInfo> {
  try {
    await app.listen({ host: at.host, port: at.port });
  } catch (error) {
    throw asListenError(error, `listen.${name}`, at);
  }
  const address = app.server.address();
  if (address === null || typeof address === 'string') throw new Error(`listen.${name} has no port`);
  return address;
}
