import { WriteProbe } from '../database/write-probe.js';
import { ApiMetrics, type ApiBuild } from '../rest/api-metrics.js';
import { describeRoutes } from '../rest/openapi/describe-routes.js';
import { requireToken } from '../rest/bearer-token.js';
import { createRestApp, type RestApp } from '../rest/rest-app.js';
import type { Pepper } from '../gateway/api-key.js';
import { registryDescription } from './description.js';
import { eventRoutes } from './events/routes.js';
import { gatewayRoutes } from './gateways/routes.js';
import { addHealth } from './health.js';
import { exportRoutes } from './exports/routes.js';
import { importRoutes } from './imports/routes.js';
import { keyRoutes } from './keys/routes.js';
import { merchantRoutes } from './merchants/routes.js';
import type { Clock, Logger, RecordsStore, Timers } from './ports.js';
import type { Projector } from './projection/projector.js';
import { followChanges, followProjection } from './propagation.js';
import type { RegistryDatabase } from './registry-database.js';
import { restoreRoutes } from './restores/routes.js';
import { showRegistry } from './registry-metrics.js';

/** What the admin API is made with. */
export interface RegistryOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly projector: Pick<
    Projector,
    'changed' | 'nextPass' | 'hasProjected' | 'isFailing' | 'eviction' | 'repairFigures'
  >;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: (size: number) => Buffer;
  /** What administrators show to be let in. */
  readonly token: string;
  /** HMAC pepper of the look-up ids, the same as the gateways'; null: plain SHA-256. */
  readonly pepper: Pepper | null;
  /** The resources of all routes: a new key's permissions name no other. */
  readonly resources: ReadonlySet<string>;
  /** `keyStore.cache.maxStaleSeconds` of the gateways. */
  readonly maxStaleSeconds: number;
  readonly logger?: Logger | undefined;
  /** What is wrong with the store as it was found by looking for it; left out: nobody looks. */
  readonly storeWarnings?: (() => readonly string[]) | undefined;
  /** What runs; left out: nobody says. */
  readonly build?: ApiBuild | undefined;
}

/** What may be asked of a gateway whose own limit is not known: at least the default of `maxStaleSeconds`. */
const leastStaleSeconds = 30;

/** How long a gateway may use what it holds at most, and a second, in milliseconds. */
export function longestLifetime(maxStaleSeconds: number): number {
  return (Math.max(maxStaleSeconds, leastStaleSeconds) + 1) * 1000;
}

/** Makes the admin API: merchants, keys, events and gateways. It projects nothing by itself: it tells the projector. */
export function createRegistry({ token, logger, ...options }: RegistryOptions): RestApp {
  const { database, projector } = options;
  const sources = { ...options, longestLifetimeMilliseconds: longestLifetime(options.maxStaleSeconds) };
  const app = createRestApp({ logger, admit: requireToken(token) });
  const description = describeRoutes(app, registryDescription);
  const writes = new WriteProbe(database);
  showRegistry(new ApiMetrics(app, 'registry', options.build), { ...sources, writes });
  const context = {
    ...options,
    onChange: () => {
      projector.changed();
    },
    confirm: followChanges(sources),
  };
  const importing = importRoutes(followProjection(sources));
  for (const addRoutes of [
    merchantRoutes,
    keyRoutes,
    importing,
    exportRoutes,
    gatewayRoutes(sources),
    eventRoutes,
    restoreRoutes,
  ]) {
    addRoutes(app, context);
  }
  addHealth(app, { database, writes, projector, storeWarnings: options.storeWarnings });
  app.get('/openapi.json', { config: { isOpen: true } }, () => description());
  return app;
}
