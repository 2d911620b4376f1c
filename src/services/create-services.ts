import { WriteProbe } from '../database/write-probe.js';
import type { Logger } from '../rest/answer-errors.js';
import { ApiMetrics, type ApiBuild } from '../rest/api-metrics.js';
import { describeRoutes, type OpenApi } from '../rest/openapi/describe-routes.js';
import { createRestApp, type RestApp } from '../rest/rest-app.js';
import type { AssertionVerifier } from './assertion-verifier.js';
import { customerRoutes } from './customers/routes.js';
import { servicesDescription } from './description.js';
import type { FairConnections } from './fair-connections.js';
import type { BalanceCheck } from './ledger/balance-check.js';
import { addHealth } from './health.js';
import { requireIdentity, tenantOf } from './identity.js';
import { payoutRoutes } from './payouts/routes.js';
import type { RouteContext } from './routes.js';
import { transactionRoutes } from './transactions/routes.js';
import { walletRoutes } from './wallets/routes.js';

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
