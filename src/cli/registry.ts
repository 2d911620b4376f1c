import { randomBytes } from 'node:crypto';
import { Command } from 'commander';
import { openRecordsStore } from '../adapters/redis/registry/open-records-store.js';
import { ConfigError } from '../config/config-error.js';
import { configNotes, startProblems } from '../config/config-notes.js';
import { loadConfig } from '../config/load.js';
import type { RunningRegistry } from '../registry/start-registry.js';
import { readPepper, readRecordSeals } from './compose/key-secrets.js';
import { redisAddressOf } from './compose/redis-address.js';
import { RedisSelfCheck } from './compose/redis-self-check.js';
import { systemClock, systemTimers } from './compose/system-clock.js';
import { beginLog, ignoreReloadSignals, runServer } from './run-server.js';

/** The registry writes many records at once, and nobody waits for a single one of them. */
const commandTimeoutMilliseconds = 5_000;

/** `registry`: the control plane. */
export function registryCommand(): Command {
  return new Command('registry')
    .description('own merchants and keys: system of record, admin API, projection into Redis')
    .option('--config <file>', 'configuration file')
    .option('--create', 'make the database where there is none, for a new installation')
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
  const { log, build } = beginLog('registry', config);
  for (const { path, message } of configNotes('registry', config)) log.warn(`${path} ${message}`);
  const { listen, database, tokenFile, retention } = config.registry;
  const { redis, cache } = config.keyStore;
  const address = { ...(await redisAddressOf(redis)), commandTimeoutMilliseconds };
  const pepper = await readPepper(config.keys.pepperFile);
  const seals = await readRecordSeals(config.keys.recordSecretFile);
  // Here and not above: no other command needs SQL.
  const { startRegistry } = await import('../registry/start-registry.js');
  ignoreReloadSignals(log);
  await runServer(config, log, async (closeLater) => {
    let running: RunningRegistry | null = null;
    const check = await RedisSelfCheck.start(config, 'registry', log);
    closeLater(() => check.close());
    const outageLog = check.outageEvents();
    const onFound = (lostForMilliseconds: number): void => {
      outageLog.onFound(lostForMilliseconds);
      running?.storeFound();
    };
    const store = openRecordsStore(address, redis.prefix, { ...outageLog, onFound }, seals);
    closeLater(() => store.close());
    const registry = await startRegistry({
      ...listen,
      databaseUrl: database.url,
      mayCreate: create === true,
      storeWarnings: check.warnings,
      build,
      tokenFile,
      eventsDays: retention.eventsDays,
      store,
      clock: systemClock,
      timers: systemTimers,
      random: randomBytes,
      pepper,
      resources: new Set(config.routes.map(({ resource }) => resource)),
      maxStaleSeconds: cache.maxStaleSeconds,
      logger: log,
    });
    running = registry;
    closeLater(() => registry.close());
    log.info({ url: registry.url }, 'the registry takes requests');
  });
}
