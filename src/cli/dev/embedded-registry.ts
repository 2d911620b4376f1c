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
import { readRecordSeals } from '../compose/secrets.js';
import { redisAddressOf, redisOutageLog } from '../compose/redis-address.js';
import { systemClock } from '../compose/system-clock.js';
import { openUnusual } from '../compose/unusual.js';
import { openWitness } from '../compose/witness.js';
import { registryOptionsOf } from '../registry.js';
import { version } from '../version.js';

/** A registry in the same process as the gateway. */
export interface EmbeddedRegistry {
  readonly registry: RunningRegistry;
  readonly records: Records;
  /** The channel that carries checkpoints from the gateway to the registry. */
  readonly channel: RegistryChannel;
  /** The channel that carries request counts from the gateway to the registry. */
  readonly usageChannel: RegistryChannel;
}

/** Options that the command `dev` passes to its registry. */
interface EmbeddedOptions {
  /**
   * Prefix of temporary Redis keys. If the configuration uses this prefix, all keys with the prefix are deleted when
   * the process stops or its start fails. Null: nothing is deleted.
   */
  readonly temporaryPrefix: string | null;
  /** Returns the URL of the operators' API, which the services provide; null until the services have started. */
  readonly operatorsUrl: () => string | null;
  /** Returns the address at which merchants reach the gateway. */
  readonly merchantApi: () => MerchantApi;
  /**
   * Adds a function that runs when the process stops or its start fails. The function that was added last runs first.
   * Throws if the process is already stopping.
   */
  readonly closeLater: (close: () => Promise<void>) => void;
}

/**
 * Starts a registry. It writes its records to Redis or, with `keyStore.kind: memory`, to a store in memory from which
 * the gateway reads. Registers functions with `closeLater` that close the registry and the records. The gateway may
 * already have closed the records.
 */
export async function startEmbeddedRegistry(
  config: Config,
  log: Logger,
  { temporaryPrefix, merchantApi, operatorsUrl, closeLater }: EmbeddedOptions,
): Promise<EmbeddedRegistry> {
  const [channel, usageChannel] = [new MemoryChannel(), new MemoryChannel()];
  const { certFile } = config.services.operators.listen;
  const options = await registryOptionsOf(config, log);
  const { store, records } = await openBothSides(config, log, temporaryPrefix, closeLater);
  const unusualUse = await openUnusual(config);
  closeLater(async () => unusualUse?.close());
  const operatorsApi =
    (await openOperatorsApi(config)) ??
    (await operatorsApiAt(operatorsUrl, certFile === null ? null : await trustCertificate(certFile)));
  closeLater(() => operatorsApi.close());
  const registry = await startRegistry({
    ...options,
    store,
    inbox: channel,
    usageInbox: usageChannel,
    witness: await openWitness(config, log),
    operatorsApi,
    unusual: unusualUse?.unusual ?? null,
    console: config.registry.console && { ...config.registry.console, merchantApi },
  });
  closeLater(() => registry.close());
  return { registry, records, channel, usageChannel };
}

/** Opens `store`, which the registry writes, and `records`, which the gateway reads. */
async function openBothSides(
  config: Config,
  log: Logger,
  temporaryPrefix: string | null,
  closeLater: EmbeddedOptions['closeLater'],
): Promise<{ store: RecordsStore; records: Records }> {
  if (config.keyStore.kind === 'redis') {
    const { redis } = config.keyStore;
    if (redis.prefix === temporaryPrefix) closeLater(() => removeRecords(redis, log));
    const seals = await readRecordSeals(config.keys.recordSecretFile);
    const store = openRecordsStore(await redisAddressOf(redis), redis.prefix, redisOutageLog(log), seals);
    closeLater(() => store.close());
    const records = await openRecords(config, log);
    closeLater(() => records.close());
    return { store, records };
  }
  const memory = new MemoryRecords({}, undefined, {
    instanceId: 'dev',
    environment: config.environment,
    host: hostname(),
    version,
    startedAt: new Date(systemClock.now()).toISOString(),
  });
  return { store: memory, records: memory };
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
