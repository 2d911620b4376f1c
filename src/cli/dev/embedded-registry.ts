import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { MemoryChannel } from '../../adapters/memory/memory-channel.js';
import { MemoryRecords } from '../../adapters/memory/memory-records.js';
import { openRecordsStore } from '../../adapters/redis/registry/open-records-store.js';
import { RedisStoredRecords } from '../../adapters/redis/stored-records.js';
import type { Config } from '../../config/schema.js';
import type { Records } from '../../gateway/record-key-store.js';
import type { RegistryChannel } from '../../gateway/channel-ports.js';
import type { RecordsStore } from '../../gateway/store-ports.js';
import type { MerchantApi } from '../../registry/console/create-console.js';
import { type RunningRegistry, startRegistry } from '../../registry/start-registry.js';
import type { Logger } from '../../telemetry/logger.js';
import { trustCertificate } from '../../tls/client-trust.js';
import { openRecords } from '../compose/gateway-ports.js';
import { openOperatorsApi, operatorsApiAt } from '../compose/operators-api.js';
import { openServicesTokenKey, readPepper, readRecordSeals } from '../compose/secrets.js';
import { redisAddressOf, redisOutageLog } from '../compose/redis-address.js';
import { systemClock, systemTimers } from '../compose/system-clock.js';
import { openUnusual } from '../compose/unusual.js';
import { openWitness } from '../compose/witness.js';
import { version } from '../version.js';

/** A registry in the same process as the gateway. */
export interface EmbeddedRegistry {
  readonly registry: RunningRegistry;
  readonly records: Records;
  /** The channel that carries checkpoints from the gateway to the registry. */
  readonly channel: RegistryChannel;
  /** The channel that carries request counts from the gateway to the registry. */
  readonly usageChannel: RegistryChannel;
  close(): Promise<void>;
}

/** Options that the command `dev` passes to its registry. */
interface EmbeddedOptions {
  /** Prefix in Redis whose records `close` removes; null: `close` removes nothing. */
  readonly temporaryPrefix: string | null;
  /** Returns the URL of the operators' API, which the services provide; null until the services have started. */
  readonly operatorsUrl: () => string | null;
  /** Returns the address at which merchants reach the gateway. */
  readonly merchantApi: () => MerchantApi;
}

/**
 * Starts a registry that writes to Redis. With `keyStore.kind: memory`, it writes to records in memory that the gateway
 * shares.
 */
export async function startEmbeddedRegistry(
  config: Config,
  log: Logger,
  { temporaryPrefix, merchantApi, operatorsUrl }: EmbeddedOptions,
): Promise<EmbeddedRegistry> {
  const { store, records, close } = await openBothSides(config, log);
  const { listen, behindProxy, hosts, database, tokenFile, bootstrap, reasonFor, approvals, retention } =
    config.registry;
  const [channel, usageChannel] = [new MemoryChannel(), new MemoryChannel()];
  const unusualUse = await openUnusual(config);
  const { certFile } = config.services.operators.listen;
  const operatorsApi =
    (await openOperatorsApi(config)) ??
    (await operatorsApiAt(operatorsUrl, certFile === null ? null : await trustCertificate(certFile)));
  try {
    const registry = await startRegistry({
      ...listen,
      ...{
        behindProxy,
        hosts,
        databaseUrl: database.url,
        tokenFile,
        bootstrap,
        reasonFor: new Set(reasonFor),
        approvals,
      },
      ...{ store, clock: systemClock, timers: systemTimers },
      ...{
        eventsDays: retention.eventsDays,
        inbox: channel,
        usageInbox: usageChannel,
        witness: await openWitness(config, log),
      },
      usage: config.registry.usage,
      servicesTokenKey: await openServicesTokenKey(config.registry.servicesToken),
      operatorsApi,
      unusual: unusualUse?.unusual ?? null,
      console: config.registry.console && { ...config.registry.console, merchantApi },
      random: randomBytes,
      pepper: await readPepper(config.keys.pepperFile),
      resources: new Set(config.routes.map(({ resource }) => resource)),
      maxStaleSeconds: config.keyStore.cache.maxStaleSeconds,
      logger: log,
    });
    return {
      registry,
      records,
      channel,
      usageChannel,
      close: async () => {
        await registry.close();
        await unusualUse?.close();
        await operatorsApi.close();
        await close();
        if (config.keyStore.kind === 'redis' && config.keyStore.redis.prefix === temporaryPrefix) {
          await removeRecords(config.keyStore.redis, log);
        }
      },
    };
  } catch (error) {
    await unusualUse?.close();
    await operatorsApi.close();
    await close();
    await records.close();
    throw error;
  }
}

/**
 * Opens the store to which the registry writes and the records that the gateway reads. `close` closes only the store.
 */
async function openBothSides(
  config: Config,
  log: Logger,
): Promise<{ store: RecordsStore; records: Records; close: () => Promise<void> }> {
  if (config.keyStore.kind === 'redis') {
    const { redis } = config.keyStore;
    const seals = await readRecordSeals(config.keys.recordSecretFile);
    const store = openRecordsStore(await redisAddressOf(redis), redis.prefix, redisOutageLog(log), seals);
    return { store, records: await openRecords(config, log), close: () => store.close() };
  }
  const memory = new MemoryRecords({}, undefined, {
    instanceId: 'dev',
    environment: config.environment,
    host: hostname(),
    version,
    startedAt: new Date(systemClock.now()).toISOString(),
  });
  return { store: memory, records: memory, close: () => Promise.resolve() };
}

async function removeRecords(redis: Config['keyStore']['redis'], log: Logger): Promise<void> {
  const stored = new RedisStoredRecords(await redisAddressOf(redis), redis.prefix);
  try {
    await stored.removeAll();
  } catch (error) {
    log.warn({ err: error }, `the records ${redis.prefix}* could not be removed from Redis`);
  } finally {
    stored.close();
  }
}
