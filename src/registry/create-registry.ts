import type { FastifyInstance, FastifyRequest } from 'fastify';
import { WriteProbe } from '../database/open-database.js';
import type { Pepper } from '../gateway/api-key.js';
import { type ApiBuild, ApiMetrics } from '../rest/api-metrics.js';
import { requireAccess } from './administrators/access.js';
import { unknownAuthor, unreadAuthor } from './administrators/request-author.js';
import { Attempts } from './administrators/attempts.js';
import { Identities } from './administrators/caller.js';
import { administratorRoutes } from './administrators/routes.js';
import { approvalRoutes } from './approvals/routes.js';
import { bearerCredentials } from './administrators/credentials.js';
import { type ConsoleSettings, createConsole, type MerchantApi } from './console/create-console.js';
import { consoleRoutes } from './console/routes.js';
import { failure, success } from '../rest/envelope.js';
import { describeRoutes } from '../rest/openapi/describe-routes.js';
import { registryDescription } from './admin-description.js';
import type { Refusal } from '../rest/refusal.js';
import { createRestApp, type RestApp } from '../rest/rest-app.js';
import { gatewayRoutes } from './gateways/routes.js';
import { importRoutes } from './imports/routes.js';
import { checkpointRoutes } from './checkpoints/routes.js';
import { keyRoutes } from './keys/routes.js';
import { memberRoutes } from './members/routes.js';
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
import { searchRoutes } from './search/routes.js';
import { streamRoutes } from './events/stream-routes.js';
import type { Routes } from './routes.js';
import type { IdentityProvider } from './sign-in/provider.js';
import { signInRoutes } from './sign-in/routes.js';
import { exportRoutes } from './exports/routes.js';
import type { ServicesTokenKey } from './services-tokens/services-tokens.js';
import { servicesTokenRoutes } from './services-tokens/routes.js';
import { usageRoutes } from './usage/routes.js';
import type { UsageBatches } from './usage/usage-batches.js';
import { unusualRoutes } from './unusual/routes.js';
import type { UnusualUse } from './unusual/unusual-use.js';
import type { WebhookTarget } from './unusual/webhooks.js';
import type { OperatorsApi } from './wallets/relay.js';
import { walletRoutes } from './wallets/routes.js';

/** Options of the admin API and the console. */
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
  /** The shared token of `registry.tokenFile`; null without this file, or if `registry.bootstrap` is `off`. */
  readonly token: string | null;
  /** Called after an owner (an administrator with the role `owner`) was created. */
  readonly onOwner?: (() => void) | undefined;
  /** Permissions for which a request must state a reason. Default: no permission requires a reason. */
  readonly reasonFor?: ReadonlySet<string> | undefined;
  /**
   * Secret of the HMAC that hashes an API key to its lookup id. The database stores this id instead of the key. The
   * gateways must have the same secret. Null: lookup ids are SHA-256 hashes without a secret.
   */
  readonly pepper: Pepper | null;
  /** The resources of all configured routes. The permissions of a new key must not name other resources. */
  readonly resources: ReadonlySet<string>;
  /** The option `keyStore.cache.maxStaleSeconds`: how long a gateway is allowed to use stale cached records. */
  readonly maxStaleSeconds: number;
  readonly logger?: Logger | undefined;
  /** Returns the current problems of the gateways' store. Omitted if the store is not checked. */
  readonly storeWarnings?: (() => readonly string[]) | undefined;
  /**
   * Signs the registry's own audit trail, and receipts for checkpoints. A checkpoint is the signed state of a gateway's
   * access log; a receipt proves that the registry accepted it. Null, the default: the registry accepts no checkpoints,
   * and signs nothing.
   */
  readonly witness?: NoteSigner | null | undefined;
  /** How clients reach the API: TLS, host names and reverse proxies. Default: plain HTTP on loopback, no proxies. */
  readonly access?: RegistryAccess | undefined;
  /** The OpenID provider at which people sign in. Null, the default: the registry refuses sign-ins. */
  readonly identityProvider?: IdentityProvider | null | undefined;
  /**
   * Signs tokens for the operators' API of the backing services (wallets, payouts and others). Null, the default: the
   * registry refuses requests for such tokens.
   */
  readonly servicesTokenKey?: ServicesTokenKey | null | undefined;
  /**
   * The operators' API of the backing services, through which the console reads and funds wallets. Null, the default:
   * the console has no wallets.
   */
  readonly operatorsApi?: OperatorsApi | null | undefined;
  /** The numbers of received batches (messages with request counts), for the metrics. Default: no numbers. */
  readonly usageBatches?: Pick<UsageBatches, 'results'> | undefined;
  /** The rules that detect unusual use of keys. Null, the default: the registry reports no unusual use. */
  readonly unusual?: RegistryUnusual | null | undefined;
  /** The web console. Null, the default: the registry serves no console. */
  readonly console?: ConsoleSettings | null | undefined;
  /** Version and configuration digest of the running program, for the metrics. Default: `unknown`. */
  readonly build?: ApiBuild | undefined;
}

/** The rules that detect unusual use of keys, and the webhooks that get the findings. */
export interface RegistryUnusual {
  readonly use: Pick<UnusualUse, 'off'>;
  readonly targets: readonly WebhookTarget[];
}

/**
 * The smallest `maxStaleSeconds` that the registry assumes. It equals the option's default. The registry does not know
 * the value that each gateway uses. If the registry assumed a smaller value than a gateway uses, that gateway could
 * still use a record that the registry considers expired.
 */
const leastStaleSeconds = 30;

/** Returns the maximum time for which a gateway is allowed to use a cached record, plus one second, in milliseconds. */
export function longestLifetime(maxStaleSeconds: number): number {
  return (Math.max(maxStaleSeconds, leastStaleSeconds) + 1) * 1000;
}

/** The HTTP servers of the registry. */
export interface RegistryServers {
  readonly app: RestApp;
  /** The server of the console; null if the console is off. */
  readonly console: FastifyInstance | null;
}

/**
 * Creates the admin API and, if the console is on, the server of the console. That server offers most routes of the
 * admin API to people with a browser, and also routes for wallets. After each change, the admin API wakes the
 * projector, which writes the changed records to the gateways' store.
 */
export function createServers({ token, logger, ...options }: RegistryOptions): RegistryServers {
  const { database, projector, access = localAccess, clock, reasonFor, console: consoleOptions = null } = options;
  const sources = { ...options, longestLifetimeMilliseconds: longestLifetime(options.maxStaleSeconds) };
  const attempts = new Attempts(options);
  const authentication = { database, attempts, clock, reasonFor };
  const credentials = bearerCredentials(new Identities({ database, bootstrapToken: token }));
  const onRefused = (request: FastifyRequest, { code }: Refusal): void => {
    attempts.refused(code ?? '', unknownAuthor(request));
  };
  const admit = requireOwnHost(access, requireAccess({ ...authentication, credentials }), onRefused);
  const onOversized = (address: string | null): void => {
    attempts.refused('headers_too_large', unreadAuthor(address));
  };
  const app = createRestApp({ logger, tls: access.tls, admit, onOversized });
  // `attempts` stores events about refused requests and about reads. `stop` is called twice: in `preClose` it
  // stores the counts of refused requests, while the database is still open. In `onClose`, after the last request, it
  // waits for pending writes of events.
  app.addHook('preClose', () => attempts.stop());
  app.addHook('onClose', () => attempts.stop());
  const description = describeRoutes(app, registryDescription);
  const writes = new WriteProbe(database);
  const metrics = new ApiMetrics(app, 'registry', options.build);
  addRegistryMetrics(metrics, { ...sources, writes, tls: access.tls });
  const context = {
    ...options,
    onChange: () => {
      projector.changed();
    },
    confirm: followChanges(sources),
  };
  const groups = routeGroups(options, attempts, importRoutes(followProjection(sources)));
  for (const addRoutes of groups) addRoutes(app, context);
  signInRoutes({ attempts, provider: options.identityProvider ?? null })(app, context);
  addHealth(app, { database, writes, projector, storeWarnings: options.storeWarnings });
  app.get('/openapi.json', { config: { isOpen: true } }, () => description());
  const console =
    consoleOptions &&
    createConsole({
      ...{ ...consoleOptions, logger, attempts, context, onRefused, authentication },
      provider: options.identityProvider ?? null,
      addRoutes: (api) => {
        metrics.count(api);
        for (const addRoutes of [...groups, ...walletGroups(options)]) addRoutes(api, context);
      },
    });
  return { app, console };
}

/** Returns the groups of routes that the admin API and the console have in common. */
function routeGroups(
  options: Omit<RegistryOptions, 'token' | 'logger'>,
  attempts: Attempts,
  importing: Routes,
): readonly Routes[] {
  const { witness = null, unusual, servicesTokenKey = null, reasonFor = new Set<string>(), clock, timers } = options;
  const { console = null, identityProvider = null } = options;
  const origin = (): string | null => console?.origin() ?? null;
  const merchantApi = (): MerchantApi => console?.merchantApi() ?? { liveUrl: null, testUrl: null, caFile: null };
  return [
    ...[merchantRoutes, keyRoutes, importing, exportRoutes],
    gatewayRoutes({ ...options, longestLifetimeMilliseconds: longestLifetime(options.maxStaleSeconds) }),
    ...[eventRoutes(witness), restoreRoutes, checkpointRoutes(witness)],
    administratorRoutes({
      ...{ attempts, hasSignIn: identityProvider !== null, hasWallets: walletGroups(options).length > 0 },
      ...{ merchantApi, onOwner: options.onOwner },
    }),
    ...[approvalRoutes(attempts), usageRoutes],
    servicesTokenRoutes({ key: servicesTokenKey, reasonFor, attempts }),
    unusualRoutes({ attempts, reasonFor, targets: unusual?.targets ?? [], off: unusual?.use.off ?? null }),
    ...[consoleRoutes({ attempts, origin }), memberRoutes({ attempts, origin }), searchRoutes],
    streamRoutes({ database: options.database, clock, timers }),
  ];
}

/**
 * Returns the routes for wallets. The console has these routes, but the admin API does not: scripts call the operators'
 * API of the backing services directly.
 */
function walletGroups({ console, operatorsApi, servicesTokenKey: key, reasonFor }: WalletOptions): readonly Routes[] {
  if (!console || !operatorsApi || !key) return [];
  return [walletRoutes({ operatorsApi, key, reasonFor: reasonFor ?? new Set() })];
}

type WalletOptions = Pick<RegistryOptions, 'console' | 'operatorsApi' | 'servicesTokenKey' | 'reasonFor'>;

/** Dependencies of the readiness check. */
interface HealthSources {
  readonly database: RegistryDatabase;
  readonly writes: Pick<WriteProbe, 'problem'>;
  readonly storeWarnings?: (() => readonly string[]) | undefined;
  readonly projector: Pick<Projector, 'isFailing' | 'hasProjected' | 'eviction' | 'repairCounts'>;
}

/**
 * Adds the routes for liveness and readiness, which need no token. The registry is ready while it can write to its
 * database. It is ready even if the gateways' store is unavailable, because it stores changes in the database first.
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
