import type { AddressInfo } from 'node:net';
import { asListenError } from '../config/listen-error.js';
import { databaseClock } from '../database/database-clock.js';
import { isPostgres } from '../database/is-postgres.js';
import { defaultPool, type PoolOptions } from '../database/open-database.js';
import { createServices, type ServicesOptions } from './create-services.js';
import { FairConnections } from './fair-connections.js';
import { OldAnswers } from './idempotency/old-answers.js';
import { advancePayouts } from './payouts/advance-payouts.js';
import { PeriodicTask, type Timers } from './periodic-task.js';
import { openServicesDatabase, type ServicesDatabase } from './services-database.js';

/** How the services are started. */
export interface StartOptions extends Omit<ServicesOptions, 'database' | 'clock' | 'connections'> {
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** `sqlite:PATH`, `sqlite::memory:` or `postgres://…`. */
  readonly databaseUrl: string;
  readonly pool?: PoolOptions | undefined;
  /** The machine's, in milliseconds since 1970. */
  readonly clock: { now(): number };
  readonly timers: Timers;
}

/** Services that take requests. */
export interface RunningServices {
  readonly url: string;
  /** Open until `close()`. */
  readonly database: ServicesDatabase;
  /** Answers what has begun, ends the tasks, then closes the database. */
  close(): Promise<void>;
}

const payoutsPauseMilliseconds = 250;
const answersPauseMilliseconds = 60_000;

/**
 * Opens the database, brings it up to date, takes requests, and moves payouts to their end.
 * @throws DatabaseError
 * @throws OperatorError when the port is taken
 */
export async function startServices({
  host,
  port,
  databaseUrl,
  pool = defaultPool,
  clock,
  timers,
  ...rest
}: StartOptions): Promise<RunningServices> {
  const database = await openServicesDatabase({ url: databaseUrl, pool });
  const { logger } = rest;
  const options = { ...rest, database, clock: databaseClock(database, clock) };
  const connections = isPostgres(database) ? new FairConnections({ pool, timers }) : null;
  const { app } = createServices({ ...options, connections });
  const oldAnswers = new OldAnswers(options);
  const tasks = [
    {
      name: 'payouts',
      pauseMilliseconds: payoutsPauseMilliseconds,
      act: () => advancePayouts(options),
    },
    {
      name: 'kept answers',
      pauseMilliseconds: answersPauseMilliseconds,
      act: () => oldAnswers.forget(),
    },
  ].map((task) => new PeriodicTask({ ...task, timers, logger }));
  app.addHook('onClose', async () => {
    for (const task of tasks) await task.stop();
    await database.destroy();
  });
  try {
    await app.listen({ host, port });
  } catch (error) {
    await app.close();
    throw asListenError(error, 'services.listen', { host, port });
  }
  for (const task of tasks) task.start();
  const address = app.server.address() as AddressInfo;
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return { url: `http://${name}:${address.port}`, database, close: () => app.close() };
}
