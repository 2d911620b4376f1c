import { WriteProbe } from '../database/open-database.js';
import type { Logger } from '../rest/error-responses.js';
import { type ApiBuild, ApiMetrics } from '../rest/api-metrics.js';
import { failure, success, successPage } from '../rest/envelope.js';
import { describeRoutes, type OpenApi } from '../rest/openapi/describe-routes.js';
import { codeOf, Refusal } from '../rest/refusal.js';
import { createRestApp, type RestApp, noQuery } from '../rest/rest-app.js';
import type { AssertionVerifier } from './assertion-verifier.js';
import { customerRoutes } from './customers/routes.js';
import { servicesDescription } from './description.js';
import type { FairConnectionShares } from './fair-connections.js';
import { requireIdentity, tenantOf } from './identity.js';
import type { BalanceCheck } from './ledger/balance-check.js';
import { payoutRoutes } from './payouts/routes.js';
import { type RouteContext, type Routes, idIn } from './routes.js';
import { pagingOf } from '../rest/paging.js';
import { findTransaction, listTransactions } from './transactions/repository.js';
import {
  transactionNumberForm,
  transactionParams,
  transactionSchema,
  transactionsQuery,
} from './transactions/schema.js';
import { recordParams } from './fields.js';
import type { OperatorEvents } from './operators/operator-events.js';
import { listWallets, requireWallet } from './wallets/repository.js';
import { walletSchema, walletsQuery } from './wallets/schema.js';

/** Options of `createServices`. */
export interface ServicesOptions extends Omit<RouteContext, 'running'> {
  readonly logger?: Logger | undefined;
  /** Version and configuration digest of the running program, which the metrics show. */
  readonly build?: ApiBuild | undefined;
  /**
   * Verifies that requests come from the gateway. Null: only requests from loopback with a local Host header are
   * accepted.
   */
  readonly assertions: AssertionVerifier | null;
  /**
   * Lower-case host names of this machine. If `assertions` is null, the Host header of a request must be one of these
   * names or a loopback name.
   */
  readonly hosts?: ReadonlySet<string>;
  /**
   * `limits.headerBytes` of the gateways. The head of a request may be 16 KiB larger, because the gateway adds headers.
   */
  readonly headerBytes?: number;
  /** Limits the database connections that each merchant can use at once; null for SQLite, which has one connection. */
  readonly connections: FairConnectionShares | null;
  /** The results of the balance check (wallets against ledger). If omitted, `/readyz` shows no warnings. */
  readonly ledger?: Pick<BalanceCheck, 'state' | 'warnings'>;
  /**
   * The events about operators that the registry has not stored yet. If omitted, the metrics about them are NaN.
   */
  readonly operatorEvents?: Pick<OperatorEvents, 'waiting'>;
}

/** The services' HTTP app and its OpenAPI description. */
export interface Services {
  readonly app: RestApp;
  readonly openApi: () => OpenApi;
}

/** An upper limit of the total size of the headers that the gateway adds to a request. */
const addedHeaderBytes = 16_384;

/** Creates the backing services behind the gateway: transactions, payouts, wallets and customers. */
export function createServices(services: ServicesOptions): Services {
  const { logger, build, assertions, hosts = new Set<string>(), connections, ledger, ...rest } = services;
  const { operatorEvents = { waiting: null }, headerBytes = 0, ...options } = rest;
  const app = createRestApp({
    logger,
    maxHeadBytes: headerBytes + addedHeaderBytes,
    admit: (app) => {
      requireIdentity(app, assertions, hosts);
    },
  });
  if (connections !== null) limitConnections(app, connections);
  const openApi = describeRoutes(app, servicesDescription);
  const metrics = new ApiMetrics(app, 'services', build);
  const context = { ...options, running: new Set<string>() };
  for (const addRoutes of [transactionRoutes, payoutRoutes, walletRoutes, customerRoutes]) addRoutes(app, context);
  addHealth(app, metrics, {
    operatorEvents,
    writes: new WriteProbe(options.database),
    ledger: ledger ?? { state: null, warnings: [] },
  });
  app.get('/openapi.json', { config: { isOpen: true } }, () => openApi());
  return { app, openApi };
}

/**
 * Limits the database connections of each merchant. A request takes a connection only after its body has arrived, and
 * releases it before the response is sent. So a slow client blocks no connection.
 */
function limitConnections(app: RestApp, connections: FairConnectionShares): void {
  app.addHook('onRoute', (route) => {
    if (route.config?.isOpen === true) return;
    const { handler } = route;
    const limited: typeof handler = function (request, reply) {
      return connections.use(tenantOf(request).merchantId, () => handler.call(this, request, reply));
    };
    route.handler = limited;
  });
}

/** Sources of `/readyz` and of the health metrics. */
interface HealthSources {
  readonly operatorEvents: Pick<OperatorEvents, 'waiting'>;
  readonly writes: Pick<WriteProbe, 'problem'>;
  readonly ledger: Pick<BalanceCheck, 'state' | 'warnings'>;
}

/**
 * Adds `/livez`, `/readyz` and the health metrics, which need no merchant headers. A ledger mismatch only adds a
 * warning to `/readyz`: taking the services offline would stop all payouts and would not explain the mismatch.
 */
function addHealth(app: RestApp, metrics: ApiMetrics, { operatorEvents, writes, ledger }: HealthSources): void {
  app.get('/livez', { config: { isOpen: true } }, () => success('Alive', null));
  app.get('/readyz', { config: { isOpen: true } }, async (_request, reply) => {
    const problem = await writes.problem();
    if (problem === null) return success('Ready', { warnings: ledger.warnings });
    reply.code(503);
    return failure(problem, [], codeOf(503));
  });
  metrics.gauge('services_ready', '1 while the database can be written to, 0 while it cannot.', async () =>
    Number((await writes.problem()) === null),
  );
  metrics.gauge(
    'services_ledger_mismatched_wallets',
    'Wallets whose balance differed from the sum of their ledger entries at the last check; NaN before the first check.',
    () => ledger.state?.mismatchedWallets ?? NaN,
  );
  metrics.gauge(
    'services_ledger_unbalanced_currencies',
    'Pairs of environment and currency whose accounts did not add up to zero at the last check; NaN before the first check.',
    () => ledger.state?.unbalancedCurrencies ?? NaN,
  );
  metrics.gauge(
    'services_ledger_checked_timestamp_seconds',
    'Time at which this process last compared every balance with the ledger, in seconds since 1970; NaN before the first check.',
    () => (ledger.state?.checkedAt ?? NaN) / 1_000,
  );
  metrics.gauge(
    'services_operator_events_waiting',
    'Operator events that the registry has not stored yet; NaN before the first count.',
    () => operatorEvents.waiting?.count ?? NaN,
  );
  metrics.gauge(
    'services_operator_events_oldest_timestamp_seconds',
    'Creation time of the oldest operator event that the registry has not stored yet, in seconds since 1970; NaN if there is no such event.',
    () => (operatorEvents.waiting?.oldestAt ?? NaN) / 1_000,
  );
}

/** Adds the routes of transactions under both paths, `/transactions` and `/dev/transactions`. */
const transactionRoutes: Routes = (app, { database }) => {
  for (const path of ['/transactions', '/dev/transactions']) {
    app.get(
      path,
      {
        schema: { querystring: transactionsQuery },
        config: {
          operation: {
            summary: 'Transactions, newest first',
            message: 'Transactions retrieved',
            page: transactionSchema,
          },
        },
      },
      async (request) => {
        const paging = pagingOf(request.query);
        const page = await listTransactions(database, tenantOf(request), request.query, paging);
        return successPage('Transactions retrieved', page, paging);
      },
    );

    app.get(
      `${path}/:id`,
      {
        schema: { params: transactionParams, querystring: noQuery },
        config: {
          operation: { summary: 'One transaction', message: 'Transaction retrieved', data: transactionSchema },
        },
      },
      async (request) => {
        const { id } = request.params;
        const transaction = transactionNumberForm.test(id)
          ? await findTransaction(database, tenantOf(request), Number(id))
          : null;
        if (transaction === null) throw Refusal.notFound('Transaction');
        return success('Transaction retrieved', transaction);
      },
    );
  }
};

/** Adds the read-only routes of wallets. */
const walletRoutes: Routes = (app, { database }) => {
  app.get(
    '/dev/wallets',
    {
      schema: { querystring: walletsQuery },
      config: { operation: { summary: 'Wallets, newest first', message: 'Wallets retrieved', page: walletSchema } },
    },
    async (request) => {
      const paging = pagingOf(request.query);
      const page = await listWallets(database, tenantOf(request), request.query, paging);
      return successPage('Wallets retrieved', page, paging);
    },
  );

  app.get(
    '/dev/wallets/:id',
    {
      schema: { params: recordParams, querystring: noQuery },
      config: { operation: { summary: 'One wallet', message: 'Wallet retrieved', data: walletSchema } },
    },
    async (request) => {
      const wallet = await requireWallet(database, tenantOf(request), idIn(request.params, 'Wallet'));
      return success('Wallet retrieved', wallet);
    },
  );
};
