import { createLocalJWKSet, createRemoteJWKSet } from 'jose';
import { readPublicKeys, readRegistryKeys } from '../../adapters/identity/signing-keys.js';
import type { Config } from '../../config/schema.js';
import { createRouteTable } from '../../edge/request/routes.js';
import { readToken } from '../../rest/bearer-token.js';
import { type AssertionVerifier, createAssertionVerifier } from '../../services/assertion-verifier.js';
import { appendedSchema } from '../../registry/events/schema.js';
import type { Trail } from '../../services/operators/operator-events.js';
import { createServicesTokenVerifier } from '../../services/operators/services-token-verifier.js';
import { type OperatorsListener, type RunningServices, startServices } from '../../services/start-services.js';
import type { Logger } from '../../telemetry/logger.js';
import type { Build } from '../../telemetry/process-metrics.js';
import { trustAuthorities } from '../../tls/client-trust.js';
import { ServerTls } from '../../tls/server-tls.js';
import { AdminClient } from '../admin/admin-client.js';
import { type Peer, registryPeer } from '../admin/peer.js';
import { systemClock, systemTimers } from './system-clock.js';

/**
 * Starts the backing services as configured.
 * @param mayCreate whether to create a missing database
 */
export async function startConfiguredServices(
  config: Config,
  logger: Logger,
  { mayCreate = true, build }: { readonly mayCreate?: boolean; readonly build?: Build } = {},
): Promise<RunningServices> {
  const { listen, database, bank, operators } = config.services;
  const { url: databaseUrl, ...pool } = database;
  const { delaySeconds, failingAccounts } = bank;
  return startServices({
    ...listen,
    ...{
      databaseUrl,
      pool,
      mayCreate,
      build,
      assertions: await openAssertionVerifier(config),
      headerBytes: config.limits.headerBytes,
      hosts: new Set(Object.values(config.upstreams).map(({ url }) => new URL(url).hostname)),
      clock: systemClock,
      timers: systemTimers,
      logger,
    },
    bank: { delayMilliseconds: delaySeconds * 1000, failingAccounts },
    operators: await operatorsListener(operators, logger),
  });
}

/**
 * Returns the listener options of the operators' API. Null if neither a shared token nor a key of the registry is
 * configured, because no request could then be authenticated.
 * @throws OperatorError for an invalid token, key or certificate
 */
export async function operatorsListener(
  { listen, tokenFile, registryKeys, trail: at }: Config['services']['operators'],
  logger: Logger,
): Promise<OperatorsListener | null> {
  if (tokenFile === null && registryKeys.length === 0) return null;
  const token = tokenFile === null ? null : await readToken(tokenFile, 'services.operators.tokenFile');
  const keys = registryKeys.length === 0 ? null : createLocalJWKSet(await readRegistryKeys(registryKeys));
  const administrators = keys && createServicesTokenVerifier({ keys, clock: systemClock });
  const trail = at && (await openTrail(at));
  const { host, port, certFile, keyFile } = listen;
  if (certFile === null || keyFile === null) return { host, port, token, administrators, trail, tls: null };
  const files = { certFile, keyFile, clientCaFile: null };
  const tls = await ServerTls.open(files, 'services.operators.listen', systemClock, logger);
  return { host, port, token, administrators, trail, tls };
}

const trailPeer: Peer = {
  ...registryPeer,
  option: 'services.operators.trail.url',
  tokenOption: 'services.operators.trail.tokenFile',
  rejectedToken:
    'Check that the token in services.operators.trail.tokenFile is valid and belongs to an administrator with the role services.',
};

/**
 * Opens the client that sends the registry an event for each change by an operator. Sends no request yet, so that the
 * services can start while the registry is unavailable. The client reads the token file again before each request, so
 * that the token can be replaced.
 * @throws OperatorError for an invalid token or CA file
 */
async function openTrail(at: NonNullable<Config['services']['operators']['trail']>): Promise<Trail> {
  const { url, tokenFile, caFile } = at;
  const tokenNow = () => readToken(tokenFile, 'services.operators.trail.tokenFile');
  await tokenNow();
  const target = {
    peer: trailPeer,
    address: new URL(url),
    trust: caFile === null ? null : await trustAuthorities(caFile),
  };
  return async (events) => {
    const client = new AdminClient({ ...target, token: await tokenNow() });
    const path = ['events', 'services'];
    await client.ask({ method: 'POST', path, body: { events }, isRepeatable: true, expects: appendedSchema });
  };
}

const fetchTimeoutMilliseconds = 5_000;
/** `aud` that a gateway of the previous release writes into assertions (JWTs) if it has no `identity.audience`. */
const formerDefaultAudience = 'merchant-gateway';

/**
 * Opens the verifier with which the backing services check assertions. An assertion is a JWT in which the gateway names
 * the merchant. Returns null if neither a signing key nor `identity.publicKeysUrl` is configured.
 * @throws OperatorError
 */
export async function openAssertionVerifier(config: Config): Promise<AssertionVerifier | null> {
  const { signingKeyFile, publishedKeyFiles, publicKeysUrl, issuer, audience } = config.identity;
  const routeOf = createRouteTable({ basePath: '', routes: config.routes });
  const upstreamOf = (path: string): string | null => {
    const found = routeOf(path);
    return 'route' in found ? found.route.upstream : null;
  };
  const former = audience ?? formerDefaultAudience;
  // A gateway of the previous release writes the audience `former` into all assertions, so each service must accept
  // this audience. But if `former` is also the name of an upstream, a current gateway writes it into the assertions for
  // that upstream. So do not accept it in that case: all other services would also accept those assertions.
  const formerAudience = Object.hasOwn(config.upstreams, former) ? null : former;
  const known = { issuer, upstreamOf, formerAudience, clock: systemClock };
  if (publicKeysUrl !== null) {
    const keys = createRemoteJWKSet(new URL(publicKeysUrl), { timeoutDuration: fetchTimeoutMilliseconds });
    return createAssertionVerifier({ keys, ...known });
  }
  if (signingKeyFile === null) return null;
  const keys = createLocalJWKSet(await readPublicKeys([signingKeyFile, ...publishedKeyFiles]));
  return createAssertionVerifier({ keys, ...known });
}
