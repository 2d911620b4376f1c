import type { AddressInfo } from 'node:net';
import { asListenError } from '../config/operator-error.js';
import { databaseClock, isPostgres, addMilliseconds, sqlTime } from '../database/dialects.js';
import { defaultPool } from '../database/open-database.js';
import type { PoolOptions } from '../database/postgres.js';
import type { RestApp } from '../rest/rest-app.js';
import { createServices, type ServicesOptions } from './create-services.js';
import { purgeDeletedCustomers } from './customers/repository.js';
import { FairConnectionShares } from './fair-connections.js';
import { purgeStoredResponses, renewStoredResponses } from './idempotency/repository.js';
import { BalanceCheck } from './ledger/balance-check.js';
import { createOperatorsApi, type OperatorsOptions } from './operators/create-operators-api.js';
import { OperatorAttempts } from './operators/operator-attempts.js';
import { OperatorEvents, type Trail } from './operators/operator-events.js';
import { advancePayouts } from './payouts/advance-payouts.js';
import { PeriodicTask, type Timers } from './periodic-task.js';
import type { RouteContext } from './routes.js';
import { openServicesDatabase, type ServicesDatabase } from './services-database.js';

/** Options of `startServices`. */
export interface StartOptions extends Omit<
  ServicesOptions,
  'database' | 'clock' | 'connections' | 'ledger' | 'operatorEvents'
> {
  readonly host: string;
  /** TCP port; 0 for any free port. */
  readonly port: number;
  /** Database URL: `sqlite:PATH`, `sqlite::memory:` or `postgres://…`. */
  readonly databaseUrl: string;
  readonly pool?: PoolOptions | undefined;
  /** Whether to create a missing SQLite file, and the tables of an empty database; default true. */
  readonly mayCreate?: boolean | undefined;
  /** The machine's clock, in milliseconds since 1970. */
  readonly clock: { now(): number };
  readonly timers: Timers;
  /** Address, credentials and TLS of the operators' API; null to start without that API. */
  readonly operators?: OperatorsListener | null;
}

/** Options of the operators' API and its listener; port 0 means any free port. */
export type OperatorsListener = Pick<OperatorsOptions, 'token' | 'administrators' | 'tls'> & {
  /** Sends the stored events about operators to the registry. Null or omitted: no events are stored or sent. */
  readonly trail?: Trail | null;
  readonly host: string;
  readonly port: number;
};

/** Services that accept requests. */
export interface RunningServices {
  readonly url: string;
  /** URL of the operators' API; null without that API. */
  readonly operatorsUrl: string | null;
  /** The database, which stays open until `close()` is called. */
  readonly database: ServicesDatabase;
  /**
   * Checks the certificate files of the operators' API now. The promise resolves when changed files are in use or were
   * rejected.
   */
  reloadCertificate(): Promise<void>;
  /** Finishes requests in progress, stops the tasks, then closes the database. */
  close(): Promise<void>;
}

const payoutsPauseMilliseconds = 250;
const eventsPauseMilliseconds = 1_000;
const purgePauseMilliseconds = 60_000;
const ledgerPauseMilliseconds = 600_000;
/** How long a deleted customer's id stays valid in the `up_to` parameter of the customer list. */
const deletedCustomersRetentionMilliseconds = 30 * 24 * 60 * 60 * 1000;

/**
 * Opens and migrates the database, accepts requests, and runs the payout worker and the other periodic tasks.
 * @throws DatabaseError if the database cannot be opened or migrated
 * @throws OperatorError if the services cannot listen on an address, for example because the port is in use
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
  const connections = isPostgres(database) ? new FairConnectionShares({ pool, timers }) : null;
  const ledger = new BalanceCheck({ database, now: () => clock.now(), logger });
  const trail = operators?.trail ?? null;
  const operatorEvents = new OperatorEvents({ database, trail });
  const { app } = createServices({ ...options, connections, ledger, operatorEvents });
  const attempts =
    trail === null
      ? null
      : new OperatorAttempts({
          ...{ database, clock: options.clock, now: () => clock.now(), timers },
          waiting: () => operatorEvents.waiting?.count ?? 0,
        });
  const forOperators =
    operators && createOperatorsApi({ ...options, ...operators, storesEvents: trail !== null, attempts });
  const responsePurge = new StoredResponsePurge(options);
  const tasks = [
    {
      name: 'payouts',
      pauseMilliseconds: payoutsPauseMilliseconds,
      act: () => advancePayouts(options),
    },
    {
      name: 'stored responses',
      pauseMilliseconds: purgePauseMilliseconds,
      act: () => responsePurge.forget(),
    },
    {
      name: 'ledger',
      pauseMilliseconds: ledgerPauseMilliseconds,
      act: () => ledger.check(),
    },
    {
      name: 'deleted customers',
      pauseMilliseconds: purgePauseMilliseconds,
      act: () =>
        purgeDeletedCustomers(database, addMilliseconds(options.clock.now(), -deletedCustomersRetentionMilliseconds)),
    },
    {
      name: 'events for the registry',
      pauseMilliseconds: trail === null ? purgePauseMilliseconds : eventsPauseMilliseconds,
      act: () => operatorEvents.send(),
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
  const reloadCertificate = async (): Promise<void> => operators?.tls?.check();
  return { url, operatorsUrl, database, reloadCertificate, close: () => app.close() };
}

/** Dependencies of `StoredResponsePurge`. */
interface StoredResponsePurgeOptions extends Pick<RouteContext, 'database' | 'clock'> {
  /** A monotonic clock in milliseconds; by default `performance.now`. */
  readonly monotonic?: (() => number) | undefined;
}

const retentionMilliseconds = 24 * 60 * 60 * 1000;
/** How long a process purges nothing after its start. See `StoredResponsePurge` for the reason. */
const quietMilliseconds = 10 * 60 * 1000;
/**
 * The database clock has jumped if it advances by this much more than the monotonic clock between two calls of
 * `forget`. A smaller difference counts as a normal correction of the clock.
 */
const toleranceMilliseconds = 60_000;

/**
 * Purges stored responses after 24 hours. If a response is purged too early, a repeated request can pay a payout twice.
 * So a process that detects a forward jump of the database clock renews all stored responses: it sets their creation
 * time in the database to the time of the jump. A process that starts just after the jump cannot detect it. So each
 * process purges nothing in its first ten minutes, while other processes renew the responses.
 */
export class StoredResponsePurge {
  readonly #options: StoredResponsePurgeOptions;
  readonly #monotonic: () => number;
  #last: { readonly now: number; readonly at: number } | null = null;
  /** The monotonic time of the first call of `forget` that could read the database clock. */
  #firstAt = Infinity;
  /** The database time after a jump, until all responses stored before the jump are renewed; otherwise null. */
  #jumpedTo: number | null = null;
  /** Whether all responses that were visible after the last jump are renewed. */
  #hasRenewedVisible = false;

  constructor(options: StoredResponsePurgeOptions) {
    this.#options = options;
    this.#monotonic = options.monotonic ?? (() => performance.now());
  }

  /**
   * Purges or renews one batch; resolves with true if more could remain. The first call purges nothing: it only records
   * both clocks, so that the second call can detect a jump.
   */
  async forget(): Promise<boolean> {
    const { database, clock } = this.#options;
    const last = this.#last;
    const at = this.#monotonic();
    const { now } = await database.selectNoFrom(clock.now().as('now')).executeTakeFirstOrThrow();
    this.#last = { now, at };
    this.#firstAt = Math.min(this.#firstAt, at);
    if (last === null) return false;
    const hasJumped = now - last.now > at - last.at + toleranceMilliseconds;
    if (hasJumped) {
      this.#jumpedTo = now;
      this.#hasRenewedVisible = false;
    }
    if (this.#jumpedTo !== null) {
      if (await renewStoredResponses(database, sqlTime(this.#jumpedTo))) return true;
      // A transaction that was open during the jump can commit its response later. So another call, after a pause,
      // renews once more, and nothing is purged before that.
      if (!this.#hasRenewedVisible) {
        this.#hasRenewedVisible = true;
        return false;
      }
      this.#jumpedTo = null;
    }
    if (at - this.#firstAt < quietMilliseconds) return false;
    return purgeStoredResponses(database, addMilliseconds(sqlTime(now), -retentionMilliseconds));
  }
}
