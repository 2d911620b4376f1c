import { WriteProbe } from '../database/open-database.js';
import type { Pepper } from '../gateway/api-key.js';
import { type ApiBuild, ApiMetrics } from '../rest/api-metrics.js';
import { requireToken } from '../rest/bearer-token.js';
import { failure, success, successPage } from '../rest/envelope.js';
import { type ApiDescription, type DescribedRoute, describeRoutes } from '../rest/openapi/describe-routes.js';
import { createRestApp, type RestApp } from '../rest/rest-app.js';
import { gatewayRoutes } from './gateways/routes.js';
import { importRoutes } from './imports/routes.js';
import { keyRoutes } from './keys/routes.js';
import { merchantRoutes } from './merchants/routes.js';
import type { Clock, Logger, RecordsStore, Timers } from '../gateway/store-ports.js';
import { readHistory } from './projection/history.js';
import type { Projector } from './projection/projector.js';
import { repairPausedWarning } from './projection/repair-pause.js';
import { followChanges, followProjection } from './propagation.js';
import type { RegistryDatabase } from './registry-database.js';
import { showRegistry } from './registry-metrics.js';
import { restoreRoutes } from './restores/routes.js';
import { pagingOf } from '../rest/paging.js';
import { Refusal } from '../rest/refusal.js';
import { momentIn } from '../rest/moment.js';
import type { Routes } from './routes.js';
import { listEvents } from './events/repository.js';
import { eventSchema, eventsQuery } from './events/schema.js';
import { exportPage } from './exports/export-page.js';
import { exportPageSchema, exportQuery } from './exports/schema.js';

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

const unclear =
  'What was not answered with success may have been done all the same: look (GET /events) before it is tried again';

const actor = {
  name: 'x-actor',
  in: 'header',
  description: 'In whose name',
  schema: { type: 'string', maxLength: 64 },
};

/** What the admin API says of itself as a whole. */
const registryDescription: ApiDescription = {
  info: {
    title: 'merchant-gateway registry',
    version: '1',
    description: 'Administration of merchants and their API keys. A key is shown once, in the answer that makes it.',
  },
  security: { token: { type: 'http', scheme: 'bearer' } },
  failuresOf,
  headersOf: (route) => (isRead(route) ? [] : [actor]),
  alsoAnswers: (route) =>
    isRead(route)
      ? {}
      : { 202: 'Kept, but not yet in the store of the gateways, or perhaps unknown to a gateway that nobody can name' },
};

function failuresOf(route: DescribedRoute): Record<number, string> {
  const takesBody = route.method !== 'get';
  return {
    400: 'The request cannot be read',
    401: 'The token is missing or wrong',
    404: 'There is no such record',
    409: 'The record is in another state',
    ...(takesBody
      ? { 413: 'The body is too large', 415: 'The body is not application/json, or it is compressed' }
      : {}),
    422: 'Fields cannot be accepted; data.errors names each of them',
    500: 'A failure that nobody foresaw',
    503: isRead(route) ? 'A database is away' : `A database is away. ${unclear}`,
  };
}

function isRead({ method, operation }: DescribedRoute): boolean {
  return method === 'get' || operation.isRead === true;
}

/** What readiness depends on. */
interface HealthSources {
  readonly database: RegistryDatabase;
  readonly writes: Pick<WriteProbe, 'problem'>;
  readonly storeWarnings?: (() => readonly string[]) | undefined;
  readonly projector: Pick<Projector, 'isFailing' | 'hasProjected' | 'eviction' | 'repairFigures'>;
}

/**
 * Liveness and readiness, without a token. A store of the gateways that is away does not make the registry unready:
 * changes are still taken, and kept for it.
 */
function addHealth(app: RestApp, { database, writes, projector, storeWarnings }: HealthSources): void {
  app.get('/livez', { config: { isOpen: true } }, () => success('Alive', null));
  app.get('/readyz', { config: { isOpen: true } }, async (_request, reply) => {
    const problem = await writes.problem();
    if (problem !== null) {
      reply.code(503);
      return failure(problem);
    }
    const { revision } = await readHistory(database);
    const isCurrent = !projector.isFailing && (await projector.hasProjected(revision));
    return success('Ready', {
      projection: isCurrent ? 'current' : 'behind',
      warnings: [
        ...(projector.repairFigures.isPaused ? [repairPausedWarning] : []),
        ...projector.eviction.warnings,
        ...(storeWarnings?.() ?? []),
      ],
    });
  });
}

/** The registry's own audit trail. */
const eventRoutes: Routes = (app, { database }) => {
  const operation = { summary: 'Who changed what and when, newest first', page: eventSchema };
  app.get('/events', { schema: { querystring: eventsQuery }, config: { operation } }, async ({ query }) => {
    const { since, ...filter } = query;
    const moment = since === undefined ? undefined : momentIn(since);
    if (moment === null) {
      throw Refusal.invalid([{ path: 'since', message: 'since must be a date and time that there is' }]);
    }
    const paging = pagingOf(query);
    return successPage('Events retrieved', await listEvents(database, { ...filter, since: moment }, paging), paging);
  });
};

/** Merchants and keys, as an import takes them. */
const exportRoutes: Routes = (app, { database }) => {
  app.get(
    '/exports',
    {
      schema: { querystring: exportQuery },
      config: {
        operation: {
          summary: 'Merchants and keys as an import takes them: keys by their hashes, without the keys themselves',
          data: exportPageSchema,
        },
      },
    },
    async ({ query: { after, until, ...filter } }) => {
      const { revision } = await readHistory(database);
      const page = await exportPage(database, { ...filter, until: Number(until ?? revision) }, after);
      return success('Exported', { ...page, revision });
    },
  );
};
