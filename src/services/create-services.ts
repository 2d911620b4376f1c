import { WriteProbe } from '../database/open-database.js';
import type { Logger } from '../rest/answer-errors.js';
import { type ApiBuild, ApiMetrics } from '../rest/api-metrics.js';
import { failure, success, successPage } from '../rest/envelope.js';
import { describeRoutes, type OpenApi } from '../rest/openapi/describe-routes.js';
import { codeOf, Refusal } from '../rest/refusal.js';
import { createRestApp, type RestApp, noQuery } from '../rest/rest-app.js';
import type { AssertionVerifier } from './assertion-verifier.js';
import { customerRoutes } from './customers/routes.js';
import { servicesDescription } from './description.js';
import type { FairConnections } from './fair-connections.js';
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
import { findWallet, listWallets } from './wallets/repository.js';
import { walletSchema, walletsQuery } from './wallets/schema.js';

/** What the services are made with. */
export interface ServicesOptions extends Omit<RouteContext, 'running'> {
  readonly logger?: Logger | undefined;
  /** What runs; left out: nobody says. */
  readonly build?: ApiBuild | undefined;
  /** Proves that the gateway speaks. Null: it is believed because it speaks from this machine. */
  readonly assertions: AssertionVerifier | null;
  /** Names by which the gateway calls this machine where nothing proves it, in lower case; loopback ones need not be among them. */
  readonly hosts?: ReadonlySet<string>;
  /** Null: there is but one. */
  readonly connections: FairConnections | null;
  /** What is known of the ledger; left out: nothing. */
  readonly ledger?: Pick<BalanceCheck, 'state' | 'warnings'>;
}

/** The services, and what they say of themselves. */
export interface Services {
  readonly app: RestApp;
  readonly openApi: () => OpenApi;
}

/** Makes the backing services: transactions, payouts, wallets and customers, behind the gateway. */
export function createServices(services: ServicesOptions): Services {
  const { logger, build, assertions, hosts = new Set<string>(), connections, ledger, ...options } = services;
  const app = createRestApp({
    logger,
    admit: (app) => {
      requireIdentity(app, assertions, hosts);
    },
  });
  if (connections !== null) shareConnections(app, connections);
  const openApi = describeRoutes(app, servicesDescription);
  const metrics = new ApiMetrics(app, 'services', build);
  const context = { ...options, running: new Set<string>() };
  for (const addRoutes of [transactionRoutes, payoutRoutes, walletRoutes, customerRoutes]) addRoutes(app, context);
  addHealth(app, metrics, {
    writes: new WriteProbe(options.database),
    ledger: ledger ?? { state: null, warnings: [] },
  });
  app.get('/openapi.json', { config: { isOpen: true } }, () => openApi());
  return { app, openApi };
}

/** A place is taken when the body is there and given back when the answer is made: a caller that is slow holds none. */
function shareConnections(app: RestApp, connections: FairConnections): void {
  app.addHook('onRoute', (route) => {
    if (route.config?.isOpen === true) return;
    const { handler } = route;
    const inTurn: typeof handler = function (request, reply) {
      return connections.use(tenantOf(request).merchantId, () => handler.call(this, request, reply));
    };
    route.handler = inTurn;
  });
}

/** What readiness and the metrics depend on. */
interface HealthSources {
  readonly writes: Pick<WriteProbe, 'problem'>;
  readonly ledger: Pick<BalanceCheck, 'state' | 'warnings'>;
}

/**
 * Liveness and readiness, in nobody's name, and both among the metrics. A ledger that does not agree is a warning: without the
 * services nobody is paid, and nothing would be clearer.
 */
function addHealth(app: RestApp, metrics: ApiMetrics, { writes, ledger }: HealthSources): void {
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
    'Wallets whose balance was not the sum of their entries when this process last looked; NaN before it has.',
    () => ledger.state?.mismatchedWallets ?? NaN,
  );
  metrics.gauge(
    'services_ledger_unbalanced_currencies',
    'Environments and currencies whose accounts did not add up to zero when this process last looked; NaN before it has.',
    () => ledger.state?.unbalancedCurrencies ?? NaN,
  );
  metrics.gauge(
    'services_ledger_checked_timestamp_seconds',
    'When this process last compared every balance with the ledger; NaN where it never has.',
    () => (ledger.state?.checkedAt ?? NaN) / 1_000,
  );
}

/** The transactions, at both of their addresses. */
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

/** The merchant's wallets, to look at. */
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
      const wallet = await findWallet(database, tenantOf(request), idIn(request.params, 'Wallet'));
      if (wallet === null) throw Refusal.notFound('Wallet');
      return success('Wallet retrieved', wallet);
    },
  );
};
