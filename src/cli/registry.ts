import { randomBytes } from 'node:crypto';
import { Command } from 'commander';
import { openRecordsStore } from '../adapters/redis/registry/open-records-store.js';
import { checkpointStream, usageStream } from '../adapters/redis/channel/message-text.js';
import { ConfigError } from '../config/config-error.js';
import { configNotes, startProblems } from '../config/config-notes.js';
import { loadConfig } from '../config/load.js';
import { readSecretFile } from '../config/operator-file.js';
import type { Config } from '../config/schema.js';
import type { IdentityProvider } from '../registry/sign-in/provider.js';
import type { RunningRegistry } from '../registry/start-registry.js';
import type { Logger } from '../telemetry/logger.js';
import { openOperatorsApi } from './compose/operators-api.js';
import { openServicesTokenKey, readPepper, readRecordSeals } from './compose/secrets.js';
import { redisAddressOf } from './compose/redis-address.js';
import { RedisSelfCheck } from './compose/redis-self-check.js';
import { openUnusual } from './compose/unusual.js';
import { openInbox, openWitness } from './compose/witness.js';
import { systemClock, systemTimers } from './compose/system-clock.js';
import { onReloadSignals, runServer, startLog } from './run-server.js';

/**
 * Timeout of Redis commands. It is longer than in gateways: the registry writes many records at once, and no merchant's
 * request waits for it.
 */
const commandTimeoutMilliseconds = 5_000;

/** Creates the command `registry`, which manages merchants and API keys. */
export function registryCommand(): Command {
  return new Command('registry')
    .description(
      'run the registry: it stores merchants and keys in SQL, serves the admin API, and copies key records to Redis',
    )
    .option('--config <file>', 'configuration file')
    .option('--create', 'create the database if it does not exist, for a new installation')
    .action(registry);
}

interface RegistryCommandOptions {
  readonly config?: string;
  readonly create?: true;
}

async function registry({ config: file, create }: RegistryCommandOptions): Promise<void> {
  const config = loadConfig({ file });
  const problems = startProblems('registry', config);
  if (problems.length > 0) throw new ConfigError(problems, file ?? null);
  const { log, build } = startLog('registry', config);
  for (const { path, message } of configNotes('registry', config)) log.warn(`${path} ${message}`);
  const { listen, bootstrap, console: at } = config.registry;
  const { redis } = config.keyStore;
  const address = { ...(await redisAddressOf(redis)), commandTimeoutMilliseconds };
  const options = await registryOptionsOf(config, log);
  const seals = await readRecordSeals(config.keys.recordSecretFile);
  const identityProvider = await openIdentityProvider(config.registry.oidc);
  // These modules are imported only here, because they load SQL code, which most commands do not need.
  const { startRegistry } = await import('../registry/start-registry.js');
  const { hasOwner } = await import('../registry/administrators/repository.js');
  let running: RunningRegistry | null = null;
  const warnOfSharedToken = (): void => {
    if (bootstrap === 'on')
      log.warn(
        'the shared token of registry.tokenFile is still accepted although an owner exists; set registry.bootstrap to off',
      );
  };
  const certFile = listen.certFile ?? at?.listen.certFile ?? null;
  onReloadSignals(log, certFile, () => running?.reloadCertificate());
  await runServer(config, log, async (closeLater) => {
    const check = await RedisSelfCheck.start(config, 'registry', log);
    closeLater(() => check.close());
    const outageLog = check.outageEvents();
    const onFound = (lostForMilliseconds: number): void => {
      outageLog.onFound(lostForMilliseconds);
      running?.storeFound();
    };
    const store = openRecordsStore(address, redis.prefix, { ...outageLog, onFound }, seals);
    closeLater(() => store.close());
    const witness = await openWitness(config, log);
    const inbox = witness === null ? null : await openInbox(config, checkpointStream, log);
    closeLater(async () => inbox?.close());
    const usageInbox = config.keys.recordSecretFile === null ? null : await openInbox(config, usageStream, log);
    closeLater(async () => usageInbox?.close());
    const unusualUse = await openUnusual(config);
    closeLater(async () => unusualUse?.close());
    const operatorsApi = await openOperatorsApi(config);
    closeLater(async () => operatorsApi?.close());
    const registry = await startRegistry({
      ...options,
      mayCreate: create === true,
      storeWarnings: check.warnings,
      witness,
      identityProvider,
      operatorsApi,
      unusual: unusualUse?.unusual ?? null,
      console: at && { ...at, merchantApi: () => at.merchantApi },
      inbox,
      usageInbox,
      build,
      onOwner: warnOfSharedToken,
      store,
    });
    running = registry;
    closeLater(() => registry.close());
    const isOwned = await hasOwner(registry.database);
    if (isOwned) warnOfSharedToken();
    if (bootstrap === 'off' && !isOwned)
      log.warn(
        'no administrators can be created: registry.bootstrap is off and no active owner exists; set registry.bootstrap to on',
      );
    log.info({ url: registry.url, console: registry.consoleUrl }, 'the registry accepts requests');
  });
}

/**
 * Returns the options that every registry, including that of `dev`, takes from its configuration.
 * @throws OperatorError if the pepper or the key of services tokens cannot be read
 */
export async function registryOptionsOf({ registry, keys, keyStore, routes }: Config, log: Logger) {
  const { listen, behindProxy, hosts, database, tokenFile, bootstrap, reasonFor, approvals, retention, usage } =
    registry;
  return {
    ...listen,
    ...{ behindProxy, hosts, databaseUrl: database.url, tokenFile, bootstrap, approvals, usage },
    reasonFor: new Set(reasonFor),
    eventsDays: retention.eventsDays,
    pepper: await readPepper(keys.pepperFile),
    servicesTokenKey: await openServicesTokenKey(registry.servicesToken),
    resources: new Set(routes.map(({ resource }) => resource)),
    maxStaleSeconds: keyStore.cache.maxStaleSeconds,
    ...{ clock: systemClock, timers: systemTimers, random: randomBytes, logger: log },
  };
}

/**
 * Creates the client of the OpenID provider; null without `registry.oidc`. Sends no request, so that the registry can
 * start while the provider is unavailable.
 * @throws OperatorError if the client secret cannot be read
 */
async function openIdentityProvider(oidc: Config['registry']['oidc']): Promise<IdentityProvider | null> {
  if (oidc === null) return null;
  const { clientSecretFile, roles, merchant, ...rest } = oidc;
  const secret = await readSecretFile(clientSecretFile, 'The client secret');
  // Load these modules lazily, because only a registry with a provider needs them.
  const [{ IdentityProvider }, { ClaimRules }] = await Promise.all([
    import('../registry/sign-in/provider.js'),
    import('../registry/sign-in/claims.js'),
  ]);
  const rules = new ClaimRules(roles, merchant?.claim ?? null);
  return new IdentityProvider({ ...rest, clientSecret: secret.toString('utf8'), rules }, () => systemClock.now());
}
