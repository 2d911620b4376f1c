import type { AddressInfo } from 'node:net';
import { asListenError } from '../config/operator-error.js';
import { databaseClock, isPostgres, later, momentOf } from '../database/dialects.js';
import { defaultPool } from '../database/open-database.js';
import type { PoolOptions } from '../database/postgres.js';
import type { RestApp } from '../rest/rest-app.js';
import { createServices, type ServicesOptions } from './create-services.js';
import { forgetDeletedCustomers } from './customers/repository.js';
import { FairConnections } from './fair-connections.js';
import { forgetAnswers } from './idempotency/repository.js';
import { BalanceCheck } from './ledger/balance-check.js';
import { createOperatorsApi, type OperatorsOptions } from './operators/create-operators-api.js';
import { advancePayouts } from './payouts/advance-payouts.js';
import { PeriodicTask, type Timers } from './periodic-task.js';
import type { RouteContext } from './routes.js';
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

/** What old answers are forgotten with. */
interface OldAnswersOptions extends Pick<RouteContext, 'database' | 'clock'> {
  /** A time in milliseconds that only goes forward, at the pace of real time. */
  readonly monotonic?: (() => number) | undefined;
}

const keptMilliseconds = 24 * 60 * 60 * 1000;
/** How much faster than real time a clock may go from one look to the next, when it is put right a little. */
const toleranceMilliseconds = 60_000;

/**
 * Forgets answers after 24 hours, by a clock that somebody may put forward: then it forgets nothing for 24 hours. By that
 * time what was kept before is really that old; a payout under a key that was forgotten too early would be paid twice.
 */
export class OldAnswers {
  readonly #options: OldAnswersOptions;
  readonly #monotonic: () => number;
  #last: { readonly now: number; readonly at: number } | null = null;
  #forgetsFrom = Number.NEGATIVE_INFINITY;

  constructor(options: OldAnswersOptions) {
    this.#options = options;
    this.#monotonic = options.monotonic ?? (() => performance.now());
  }

  /** Forgets some, from the second look on; true where there may be more. */
  async forget(): Promise<boolean> {
    const { database, clock } = this.#options;
    const last = this.#last;
    const at = this.#monotonic();
    const { now } = await database.selectNoFrom(clock.now().as('now')).executeTakeFirstOrThrow();
    this.#last = { now, at };
    if (last === null) return false;
    if (now - last.now > at - last.at + toleranceMilliseconds) this.#forgetsFrom = at + keptMilliseconds;
    return at >= this.#forgetsFrom && forgetAnswers(database, later(momentOf(now), -keptMilliseconds));
  }
}
