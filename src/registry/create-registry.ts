import { WriteProbe } from '../database/open-database.js';
import type { Pepper } from '../gateway/api-key.js';
import { type ApiBuild, ApiMetrics } from '../rest/api-metrics.js';
import { requireAccess, unknownAuthor } from './administrators/access.js';
import { Attempts } from './administrators/attempts.js';
import { Identities } from './administrators/caller.js';
import { administratorRoutes } from './administrators/routes.js';
import { approvalRoutes } from './approvals/routes.js';
import { failure, success } from '../rest/envelope.js';
import { type ApiDescription, type DescribedRoute, describeRoutes } from '../rest/openapi/describe-routes.js';
import { createRestApp, type RestApp } from '../rest/rest-app.js';
import { gatewayRoutes } from './gateways/routes.js';
import { importRoutes } from './imports/routes.js';
import { checkpointRoutes } from './checkpoints/routes.js';
import { keyRoutes } from './keys/routes.js';
import { merchantRoutes } from './merchants/routes.js';
import type { NoteSigner } from '../evidence/signed-note.js';
import type { Clock, Logger, RecordsStore, Timers } from '../gateway/store-ports.js';
import { readHistory } from './projection/history.js';
import type { Projector } from './projection/projector.js';
import { repairPausedWarning } from './projection/repair-pause.js';
import { followChanges, followProjection } from './propagation.js';
import type { RegistryDatabase } from './registry-database.js';
import { addRegistryMetrics } from './registry-metrics.js';
import { restoreRoutes } from './restores/routes.js';
import { localAccess, type RegistryAccess, requireOwnHost } from './own-host.js';
import { eventRoutes } from './events/routes.js';
import type { IdentityProvider } from './sign-in/provider.js';
import { signInRoutes } from './sign-in/routes.js';
import { exportRoutes } from './exports/routes.js';
import type { ServicesTokenKey } from './services-tokens/services-tokens.js';
import { servicesTokenRoutes } from './services-tokens/routes.js';

/** Options of the admin API. */
export interface RegistryOptions {
  readonly database: RegistryDatabase;
  readonly store: RecordsStore;
  readonly projector: Pick<
    Projector,
    'changed' | 'nextPass' | 'hasProjected' | 'isFailing' | 'eviction' | 'repairCounts'
  >;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: (size: number) => Buffer;
  /** The shared token of `registry.tokenFile`; null without it, or if `registry.bootstrap` is `off`. */
  readonly token: string | null;
  /** Permissions whose use requires a reason. Default: empty. */
  readonly reasonFor?: ReadonlySet<string> | undefined;
  /** Secret for the HMAC that hashes keys to lookup ids. The gateways must have the same one. Null: plain SHA-256. */
  readonly pepper: Pepper | null;
  /** The resources of all configured routes. Permissions of a new key may name only these. */
  readonly resources: ReadonlySet<string>;
  /** The gateways' option `keyStore.cache.maxStaleSeconds`: how long they may use stale cached records. */
  readonly maxStaleSeconds: number;
  readonly logger?: Logger | undefined;
  /** Returns the current problems of the store. Omitted if the store is not checked. */
  readonly storeWarnings?: (() => readonly string[]) | undefined;
  /** Signs receipts for checkpoints of access logs. Default: the registry accepts no checkpoints. */
  readonly witness?: NoteSigner | null | undefined;
  /** How clients reach the API. Default: plain HTTP on loopback. */
  readonly access?: RegistryAccess | undefined;
  /** The OpenID provider at which people sign in. Default: none, and sign-ins are refused. */
  readonly identityProvider?: IdentityProvider | null | undefined;
  /** Signs tokens for the operators' API of the services. Default: none, and requests for them are refused. */
  readonly servicesTokenKey?: ServicesTokenKey | null | undefined;
  /** Version of the running build, for the metrics. */
  readonly build?: ApiBuild | undefined;
}

/** Lower limit of `maxStaleSeconds`: its default value, because the limit of a gateway may be unknown. */
const leastStaleSeconds = 30;

/** Returns the maximum time for which a gateway may use cached records, plus one second, in milliseconds. */
export function longestLifetime(maxStaleSeconds: number): number {
  return (Math.max(maxStaleSeconds, leastStaleSeconds) + 1) * 1000;
}

/** Creates the admin API. It notifies the projector of changes; the projector writes them to the store. */
export function createRegistry({ token, logger, ...options }: RegistryOptions): RestApp {
  const { database, projector } = options;
  const sources = { ...options, longestLifetimeMilliseconds: longestLifetime(options.maxStaleSeconds) };
  const identities = new Identities({ database, bootstrapToken: token });
  const attempts = new Attempts(options);
  const { access = localAccess, clock, reasonFor } = options;
  const admit = requireOwnHost(
    access,
    requireAccess({ database, identities, attempts, clock, reasonFor }),
    (request, { code }) => {
      attempts.refused(code ?? '', unknownAuthor(request));
    },
  );
  const app = createRestApp({ logger, tls: access.tls, admit });
  // The first time before the hooks that close the database, then for the requests that were in progress.
  app.addHook('preClose', () => attempts.stop());
  app.addHook('onClose', () => attempts.stop());
  const description = describeRoutes(app, registryDescription);
  const writes = new WriteProbe(database);
  addRegistryMetrics(new ApiMetrics(app, 'registry', options.build), { ...sources, writes, tls: access.tls });
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
    eventRoutes(options.witness ?? null),
    restoreRoutes,
    checkpointRoutes(options.witness ?? null),
    administratorRoutes,
    approvalRoutes(attempts),
    servicesTokenRoutes({ key: options.servicesTokenKey ?? null, reasonFor: reasonFor ?? new Set() }),
    signInRoutes({ attempts, provider: options.identityProvider ?? null }),
  ]) {
    addRoutes(app, context);
  }
  addHealth(app, { database, writes, projector, storeWarnings: options.storeWarnings });
  app.get('/openapi.json', { config: { isOpen: true } }, () => description());
  return app;
}

const unclear = 'The change may have been made even without a success response: check GET /events before a retry';

const actor = {
  name: 'x-actor',
  in: 'header',
  description: 'With the shared token: a name that the event notes as claimed',
  schema: { type: 'string', maxLength: 64 },
};

const reason = {
  name: 'x-reason',
  in: 'header',
  description: 'Why the request is made, percent-encoded; the event contains it',
  schema: { type: 'string', maxLength: 1800 },
};

/** The OpenAPI description of the admin API. */
const registryDescription: ApiDescription = {
  info: {
    title: 'merchant-gateway registry',
    version: '1',
    description:
      'Administration of merchants and their API keys. A key is shown only in the response to the request that creates it.',
  },
  security: { token: { type: 'http', scheme: 'bearer' } },
  failuresOf,
  headersOf: (route) => (isRead(route) ? [reason] : [actor, reason]),
  extensionsOf: ({ config: { access } }) => (access === undefined ? {} : { 'x-access': access }),
  otherResponses: (route) =>
    isRead(route)
      ? {}
      : { 202: "Stored, but not yet in the gateways' store, or possibly unknown to an unidentified gateway" },
};

function failuresOf(route: DescribedRoute): Record<number, string> {
  const takesBody = route.method !== 'get';
  return {
    400: 'Malformed request',
    401: 'The token is missing or wrong',
    403: 'The role of the caller lacks the permission, which details name',
    404: 'The record does not exist',
    409: 'The state of the record does not allow this request',
    ...(takesBody
      ? { 413: 'The body is too large', 415: 'The body is not application/json, or it is compressed' }
      : {}),
    422: 'Invalid fields; data.errors lists each of them',
    429: 'Too many failed attempts from this address',
    500: 'An unexpected error',
    503: isRead(route) ? 'A database is unavailable' : `A database is unavailable. ${unclear}`,
  };
}

function isRead({ method, operation }: DescribedRoute): boolean {
  return method === 'get' || operation.isRead === true;
}

/** Dependencies of the readiness check. */
interface HealthSources {
  readonly database: RegistryDatabase;
  readonly writes: Pick<WriteProbe, 'problem'>;
  readonly storeWarnings?: (() => readonly string[]) | undefined;
  readonly projector: Pick<Projector, 'isFailing' | 'hasProjected' | 'eviction' | 'repairCounts'>;
}

/**
 * Adds the routes for liveness and readiness, which need no token. The registry is ready even if the store is
 * unavailable, because it still accepts and stores changes.
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
        ...(projector.repairCounts.isPaused ? [repairPausedWarning] : []),
        ...projector.eviction.warnings,
        ...(storeWarnings?.() ?? []),
      ],
    });
  });
}
