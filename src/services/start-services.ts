import type { AddressInfo } from 'node:net';
import { asListenError } from '../config/listen-error.js';
import { databaseClock, later } from '../database/database-clock.js';
import { isPostgres } from '../database/is-postgres.js';
import { defaultPool, type PoolOptions } from '../database/open-database.js';
import type { RestApp } from '../rest/rest-app.js';
import { forgetDeletedCustomers } from './customers/repository.js';
import { createServices, type ServicesOptions } from './create-services.js';
import { FairConnections } from './fair-connections.js';
import { OldAnswers } from './idempotency/old-answers.js';
import { BalanceCheck } from './ledger/balance-check.js';
import { createOperatorsApi, type OperatorsOptions } from './operators/create-operators-api.js';
import { advancePayouts } from './payouts/advance-payouts.js';
import { PeriodicTask, type Timers } from './periodic-task.js';
import { openServicesDatabase, type ServicesDatabase } from './services-database.js';

/** How the services are started. */
export interface StartOptions extends Omit<ServicesOptions, 'database' | 'clock' | 'connections' | 'ledger'> {
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** `sqlite:PATH`, `sqlite::memory:` or `postgres://…`. */
  readonly databaseUrl: string;
  readonly pool?: PoolOptions | undefined;
  /** Whether a database that is not there, or is empty, is made; left out: it is. */
  readonly mayCreate?: boolean | undefined;
  /** The machine's, in milliseconds since 1970. */
  readonly clock: { now(): number };
  readonly timers: Timers;
  /** Where operators are heard, and what lets them in; null: nowhere. */
  readonly operators?: OperatorsListener | null;
}

/** The listener of the operators' API; port 0 takes a free one. */
export type OperatorsListener = Pick<OperatorsOptions, 'token' | 'tls'> & {
  readonly host: string;
  readonly port: number;
};

/** Services that take requests. */
export interface RunningServices {
  readonly url: string;
  /** Of the operators' API; null where there is none. */
  readonly operatorsUrl: string | null;
  /** Open until `close()`. */
  readonly database: ServicesDatabase;
  /** Answers what has begun, ends the tasks, then closes the database. */
  close(): Promise<void>;
}

const payoutsPauseMilliseconds = 250;
const answersPauseMilliseconds = 60_000;
const ledgerPauseMilliseconds = 600_000;
/** For how long a list can be read on from a customer that is deleted meanwhile. */
const deletedCustomersMilliseconds = 30 * 24 * 60 * 60 * 1000;

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
  mayCreate = true,
  clock,
  timers,
  operators = null,
  ...rest
}: StartOptions): Promise<RunningServices> {
  const database = await openServicesDatabase({
    url: databaseUrl,
    pool,
    existingOf: mayCreate ? undefined : 'services',
  });
  const { logger } = rest;
  const options = { ...rest, database, clock: databaseClock(database, clock) };
  const connections = isPostgres(database) ? new FairConnections({ pool, timers }) : null;
  const ledger = new BalanceCheck({ database, now: () => clock.now(), logger });
  const { app } = createServices({ ...options, connections, ledger });
  const forOperators = operators && createOperatorsApi({ ...options, ...operators });
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
    {
      name: 'ledger',
      pauseMilliseconds: ledgerPauseMilliseconds,
      act: () => ledger.look(),
    },
    {
      name: 'deleted customers',
      pauseMilliseconds: answersPauseMilliseconds,
      act: () => forgetDeletedCustomers(database, later(options.clock.now(), -deletedCustomersMilliseconds)),
    },
  ].map((task) => new PeriodicTask({ ...task, timers, logger }));
  app.addHook('onClose', async () => {
    await forOperators?.close();
    for (const task of tasks) await task.stop();
    await database.destroy();
  });
  const listen = async (one: RestApp, at: { host: string; port: number }, option: string): Promise<string> => {
    try {
      await one.listen({ host: at.host, port: at.port });
    } catch (error) {
      await app.close();
      throw asListenError(error, option, at);
    }
    const address = one.server.address() as AddressInfo;
    return `${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`;
  };
  const url = `http://${await listen(app, { host, port }, 'services.listen')}`;
  let operatorsUrl: string | null = null;
  if (operators !== null && forOperators !== null) {
    const scheme = operators.tls === null ? 'http' : 'https';
    operatorsUrl = `${scheme}://${await listen(forOperators, operators, 'services.operators.listen')}`;
  }
  for (const task of tasks) task.start();
  return { url, operatorsUrl, database, close: () => app.close() };
}
