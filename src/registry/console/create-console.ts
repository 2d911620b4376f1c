import type { FastifyInstance } from 'fastify';
import type { Logger } from '../../rest/error-responses.js';
import { createServer, type RestApp, serveJson } from '../../rest/rest-app.js';
import type { ServerTls } from '../../tls/server-tls.js';
import { type AccessOptions, requireAccess } from '../administrators/access.js';
import type { Attempts } from '../administrators/attempts.js';
import { noteClientAddress, requireProxy } from '../own-host.js';
import type { RegistryContext } from '../registry-context.js';
import type { IdentityProvider } from '../sign-in/provider.js';
import { addBrowserSignIn } from './browser-sign-in.js';
import { addEnterRoute } from './enter-route.js';
import { addPages } from './pages.js';
import { addSecurityHeaders, type OnRefused, requireConsoleHost, requireConsoleOrigin } from './request-checks.js';
import { sessionCredentials } from './sessions.js';

/** Where merchants reach the gateways (`registry.console.merchantApi`). */
export interface MerchantApi {
  readonly liveUrl: string | null;
  readonly testUrl: string | null;
  /**
   * Path of the CA file on the machines of merchants, for the example commands (`curl --cacert`) in the console. Null:
   * the gateways' certificate is from a public CA.
   */
  readonly caFile: string | null;
}

/** The address, files and TLS of the console. */
export interface ConsoleSettings {
  /**
   * Returns the only origin of the console, such as `https://console.example.com`. Call this only after the console has
   * begun to listen, because the default origin contains the actual port.
   */
  readonly origin: () => string;
  /** The directory with `index.html` and `assets`. */
  readonly directory: string;
  /** Returns the addresses at which merchants reach the gateways. */
  readonly merchantApi: () => MerchantApi;
  /** TLS of the listener; the app closes this object when the app stops. Null: plain HTTP. */
  readonly tls: ServerTls | null;
  /** Addresses and CIDRs of the reverse proxies in front of the console; null without proxies. */
  readonly behindProxy: readonly string[] | null;
}

/** Dependencies of the console. */
export interface ConsoleOptions extends ConsoleSettings {
  readonly logger?: Logger | undefined;
  readonly attempts: Attempts;
  readonly context: RegistryContext;
  readonly authentication: Omit<AccessOptions, 'credentials'>;
  /** The OpenID provider; null if no provider is configured. */
  readonly provider: IdentityProvider | null;
  /**
   * Called for each request that is refused because no page of the console sent it, or because its Host is not the host
   * of the console.
   */
  readonly onRefused: OnRefused;
  /** Adds the routes that the console and the admin API have in common. */
  readonly addRoutes: (api: RestApp) => void;
}

/**
 * Creates the server of the console. It serves the page, the sign-in and, below `/console/api`, the routes of the admin
 * API. Callers of these routes authenticate with a session cookie instead of a token.
 */
export function createConsole(options: ConsoleOptions): FastifyInstance {
  const { origin, directory, tls, behindProxy, logger, attempts, context, provider, onRefused } = options;
  const app = createServer({ logger, tls });
  addSecurityHeaders(app);
  noteClientAddress(app, behindProxy);
  requireConsoleHost(app, origin, onRefused);
  if (tls === null && behindProxy !== null) requireProxy(app, behindProxy);
  addPages(app, directory);
  addBrowserSignIn(app, { context, attempts, provider, origin });
  const credentials = sessionCredentials(context.database);
  const admit = (scope: FastifyInstance): void => {
    requireConsoleOrigin(scope, origin, onRefused);
    requireAccess({ ...options.authentication, credentials })(scope);
  };
  void app.register(
    (scope, _options, done) => {
      const api = serveJson(scope, admit);
      // Because of this handler, Fastify runs the hooks of the API for unknown paths too. The last hook rejects
      // requests for unknown paths with 404, so this handler itself never runs. Without this handler, the handler of
      // the pages would respond.
      api.setNotFoundHandler(() => null);
      options.addRoutes(api);
      addEnterRoute(api, context, attempts);
      done();
    },
    { prefix: '/console/api' },
  );
  return app;
}
