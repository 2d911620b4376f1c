import type { Logger } from '../rest/answer-errors.js';
import { createRestApp, type RestApp } from '../rest/rest-app.js';
import type { AssertionVerifier } from './assertion-verifier.js';
import { customerRoutes } from './customers/routes.js';
import { requireIdentity } from './identity.js';
import { payoutRoutes } from './payouts/routes.js';
import type { RouteContext } from './routes.js';
import { transactionRoutes } from './transactions/routes.js';
import { walletRoutes } from './wallets/routes.js';

/** What the services are made with. */
export interface ServicesOptions extends RouteContext {
  readonly logger?: Logger | undefined;
  /** Proves that the gateway speaks. Null: it is believed because it speaks from this machine. */
  readonly assertions: AssertionVerifier | null;
}

/** Makes the backing services: transactions, payouts, wallets and customers, behind the gateway. */
export function createServices({ logger, assertions, ...context }: ServicesOptions): RestApp {
  const app = createRestApp({
    logger,
    admit: (app) => {
      requireIdentity(app, assertions);
    },
  });
  for (const addRoutes of [transactionRoutes, payoutRoutes, walletRoutes, customerRoutes]) addRoutes(app, context);
  return app;
}
