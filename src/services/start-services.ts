import type { AddressInfo } from 'node:net';
import { asListenError } from '../config/listen-error.js';
import { createServices, type ServicesOptions } from './create-services.js';
import { openServicesDatabase, type ServicesDatabase } from './services-database.js';

/** How the services are started. */
export interface StartOptions extends Omit<ServicesOptions, 'database'> {
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** `sqlite:PATH` or `sqlite::memory:`. */
  readonly databaseUrl: string;
}

/** Services that take requests. */
export interface RunningServices {
  readonly url: string;
  /** Open until `close()`. */
  readonly database: ServicesDatabase;
  /** Answers what has begun, then closes the database. */
  close(): Promise<void>;
}

/**
 * Opens the database, brings it up to date, and takes requests.
 * @throws DatabaseError
 * @throws OperatorError when the port is taken
 */
export async function startServices({ host, port, databaseUrl, ...options }: StartOptions): Promise<RunningServices> {
  const database = await openServicesDatabase({ url: databaseUrl });
  const app = createServices({ database, ...options });
  app.addHook('onClose', () => database.destroy());
  try {
    await app.listen({ host, port });
  } catch (error) {
    await app.close();
    throw asListenError(error, 'services.listen', { host, port });
  }
  const address = app.server.address() as AddressInfo;
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return { url: `http://${name}:${address.port}`, database, close: () => app.close() };
}
