import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { asListenError } from '../../config/operator-error.js';

/** The address that a listener binds to. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/**
 * Binds an application to an address.
 * @param name the listener's name in the configuration
 * @throws OperatorError if the address or port cannot be used
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
