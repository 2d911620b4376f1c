import { hostname } from 'node:os';
import { usageStream } from '../../adapters/redis/channel/message-text.js';
import { GeoIpDatabases } from '../../adapters/geoip/geoip-databases.js';
import { MemoryRecords } from '../../adapters/memory/memory-records.js';
import { readRecordsFile } from '../../adapters/memory/records-file.js';
import { TorExitList } from '../../adapters/tor/tor-exit-list.js';
import { OperatorError } from '../../config/operator-error.js';
import { fileProblemOf } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
import type { GeoIp, TorExits } from '../../gateway/ports.js';
import type { Records } from '../../gateway/record-key-store.js';
import type { RegistryChannel } from '../../gateway/channel-ports.js';
import { RecordKeyStore } from '../../gateway/record-key-store.js';
import type { RecordProblem } from '../../gateway/records.js';
import type { UsagePort } from '../../edge/observe/usage-sender.js';
import type { GatewayPorts } from '../../edge/start-gateway.js';
import { ChainedLog } from '../../telemetry/chained-log.js';
import type { LineSink } from '../../telemetry/line-sink.js';
import type { ChainedLogOptions } from '../../telemetry/line-writer/log-options.js';
import { NotARegularFile, requireLogFile } from '../../telemetry/log-file.js';
import type { Logger } from '../../telemetry/logger.js';
import { version } from '../version.js';
import { openChannel, openCheckpoints } from './checkpoints.js';
import { openIdentity, openPublishedKeys } from './identity.js';
import { readLogSecret, readPepper } from './secrets.js';
import { openRedisRecords, openSharedRate } from './redis-parts.js';
import { RedisSelfCheck } from './redis-self-check.js';
import { systemClock } from './system-clock.js';
import { readPublicApi } from '../openapi/public-api.js';
import { openTorExits, type TorExitEvents } from './tor-exits.js';
import { openTraces } from './traces.js';

/** Resources that the command `dev` has already opened, and whether this process fetches the Tor exit list. */
interface GivenPorts {
  readonly records?: Records;
  /** Channel for checkpoints to a registry in this process; null or absent if there is no such registry. */
  readonly channel?: RegistryChannel | null;
  /** Channel for request counts to a registry in this process; null or absent if there is no such registry. */
  readonly usageChannel?: RegistryChannel | null;
  /** Whether this process fetches the Tor exit list. If false, another process does. Default: true. */
  readonly fetchesTorExits?: boolean;
}

/**
 * Opens all resources that the gateway needs and that the configuration names: stores, logs, lists and databases.
 * @throws OperatorError
 */
export async function openPorts(
  config: Config,
  log: Logger,
  { records, channel = null, usageChannel = null, fetchesTorExits = true }: GivenPorts = {},
): Promise<GatewayPorts> {
  const closers: (() => unknown)[] = [];
  const opened = <T extends { close(): unknown } | null>(port: T): T => {
    closers.push(() => port?.close());
    return port;
  };
  try {
    const logSecret = await readLogSecret(config.accessLog.secretFile);
    const needsRedis = records === undefined && config.keyStore.kind === 'redis';
    const check = needsRedis ? opened(await RedisSelfCheck.start(config, 'gateway', log)) : null;
    const checkpoints = await openCheckpoints(config, log, channel);
    closers.push(() => checkpoints?.close(0));
    const held = records ?? opened(await openRecords(config, log, check));
    const ports = {
      selfCheck: check,
      keyStore: new RecordKeyStore(held),
      recordCache: () => held.recordStats(),
      torExits: opened(await openLoadedTorExits(config, log, fetchesTorExits ? 'fetched' : 'followed')),
      geoIp: opened(await openGeoIp(config, log)),
      sharedRate: opened(await openSharedRate(config, log)),
      pepper: await readPepper(config.keys.pepperFile),
      identity: await openIdentity(config),
      publishedKeys: await openPublishedKeys(config),
      publicApi: readPublicApi(config),
      clock: systemClock,
      traces: await openTraces(config, log),
      logSecret,
      usage: opened(await openUsage(config, log, usageChannel)),
      accessLog: openAccessLog(config, { secret: logSecret, checkpoints }, log),
      ...reports(log),
    };
    // Send the first checkpoint of this process to the registry before the first request. If the registry did not know
    // the process, an attacker could remove all log lines of the process unnoticed.
    await checkpoints?.register();
    return ports;
  } catch (error) {
    // Close what is already open, because open connections would keep the process alive. The process would serve no
    // requests, but still confirm changes of records to the registry.
    for (const close of closers.toReversed()) await close();
    throw error;
  }
}

/**
 * Returns the channel that carries request counts to the registry: `given`, or a channel over Redis if `given` is null.
 * The channel over Redis requires records in Redis and a record secret. Returns null if `usage.enabled` is false, or if
 * neither channel is available.
 */
async function openUsage(
  config: Config,
  log: Logger,
  given: RegistryChannel | null,
): Promise<(UsagePort & { close(): Promise<void> }) | null> {
  const { usage, keys, keyStore } = config;
  const hasWay = given !== null || (keyStore.kind === 'redis' && keys.recordSecretFile !== null);
  if (!usage.enabled || !hasWay) return null;
  const channel = given ?? (await openChannel(config, usageStream));
  return {
    channel,
    instance: `${hostname()}:${process.pid}`,
    onUsageProblem: (problem) => {
      if (problem === null) log.info('the registry has resumed storing the request counts of this gateway');
      else log.warn({ problem }, 'the registry does not store request counts of this gateway');
    },
    close: () => channel.close(),
  };
}

/** Returns callbacks that log the events of the gateway. */
function reports(
  log: Logger,
): Pick<
  GatewayPorts,
  'onInternalError' | 'onCertificateChange' | 'onCertificateWarning' | 'onOverload' | 'onUnsolicitedBytes'
> {
  return {
    onInternalError: (error, requestId) => {
      log.error({ err: error, requestId }, 'unexpected error while handling a request');
    },
    onCertificateChange: ({ result, problem }) => {
      if (result === 'replaced') log.info('certificates replaced');
      else if (result === 'restored')
        log.info('the certificate files are valid again and match the certificates in use');
      else log.error({ problem }, 'the new certificates are invalid; the previous ones stay in use');
    },
    onCertificateWarning: (warning, isOver) => {
      if (isOver) log.error(`clients reject the certificate: ${warning}`);
      else log.warn(`${warning}: renew it`);
    },
    onOverload: (problem) => {
      if (problem === null) log.warn('overload ended; requests are accepted again');
      else log.error({ problem }, 'overloaded; requests are rejected with 503');
    },
    onUnsolicitedBytes: (upstream) => {
      log.error(
        { upstream },
        'an upstream sent bytes without a pending request, so a client may have received the response to another request. The gateway closed its idle connections to this upstream, and opens a new connection for each request during the next minute. Check the service behind this upstream',
      );
    },
  };
}

function openAccessLog(
  { accessLog, environment }: Config,
  proof: Required<Pick<ChainedLogOptions, 'secret' | 'checkpoints'>>,
  log: Logger,
): LineSink {
  const { destination } = accessLog;
  try {
    if (destination !== 'stdout') requireLogFile(destination);
    const opened = new ChainedLog({
      ...proof,
      origin: { version, node: `${hostname()}:${process.pid}`, host: hostname() },
      destination,
      environment,
      now: () => systemClock.now(),
      reserveBytes: accessLog.reserveBytes,
      onReserve: (hasOnlyReserve) => {
        const { reserveBytes } = accessLog;
        if (hasOnlyReserve)
          log.error(
            { destination, reserveBytes },
            'the free space on the disk of the access log is below accessLog.reserveBytes; delete or move files on this disk',
          );
        else
          log.info(
            { destination },
            'the free space on the disk of the access log is above accessLog.reserveBytes again',
          );
      },
      onReopenFailure: (error) => {
        log.error(
          { err: error, destination },
          'the access log was moved or removed, and cannot be reopened; lines still go to the former file',
        );
      },
      onReopened: () => {
        log.info({ destination }, 'access log reopened');
      },
      onOtherWriter: () => {
        log.error(
          { destination },
          'another process also writes to the access log: configure a separate file for each gateway',
        );
      },
      onProblem: (problem) => {
        if (problem === null) log.info('the access log can be written again');
        else log.error({ problem }, 'the access log cannot be written');
      },
    });
    if (proof.secret === null && proof.checkpoints === null)
      log.warn(
        'accessLog.secretFile is not set: anyone who can change the access log can also rebuild its hash chain, so that "audit verify" does not detect the change',
      );
    // A log rotation tool moves the file, and then sends SIGUSR2 to have the log reopened.
    process.on('SIGUSR2', () => {
      opened.reopen();
    });
    return opened;
  } catch (error) {
    const advice = 'configure stdout or a file that this user may write';
    const problem = error instanceof NotARegularFile ? error.message : fileProblemOf(error);
    throw new OperatorError(`The access log ${destination} cannot be opened for appending: ${problem}; ${advice}.`, {
      cause: error,
    });
  }
}

/** Opens the store of API keys and merchants that the configuration names. */
export async function openRecords(config: Config, log: Logger, check: RedisSelfCheck | null = null): Promise<Records> {
  const onMalformed = (storeKey: string, problem: string, reason: RecordProblem = 'malformed'): void => {
    log.error({ storeKey, problem, reason }, 'invalid record in the key store; requests that need the record get 503');
  };
  const { kind, memory } = config.keyStore;
  if (kind === 'redis') return openRedisRecords(config, log, onMalformed, check);
  const stored = memory.recordsFile === null ? {} : await readRecordsFile(memory.recordsFile);
  return new MemoryRecords(stored, onMalformed);
}

/** Opens the GeoIP databases; null if the configuration names no database. */
export async function openGeoIp({ geoip, torExits }: Config, log: Logger): Promise<GeoIp | null> {
  // The Anonymous IP database is used only to reject Tor exits.
  const files = { ...geoip, anonymousIpFile: torExits.enabled ? geoip.anonymousIpFile : null };
  if (Object.values(files).every((file) => file === null)) return null;
  return GeoIpDatabases.open(files, {
    denyWhenUnavailable: torExits.whenUnavailable === 'deny',
    onReload: () => {
      log.info('GeoIP database replaced');
    },
    onProblem: (error) => {
      log.error({ err: error }, 'GeoIP database is invalid; the previous one stays in use');
    },
  });
}

/**
 * Opens the Tor exit list, and loads what is already stored in the snapshot file, in list files and in Redis. Does not
 * wait for a slow fetch, but the gateway is not ready until a list is loaded. Returns an empty list if Tor exits are
 * not rejected or no source is configured.
 * @param upkeep `fetched`: this process fetches updates; `followed`: it reads the updates that another process fetches;
 *   `none`: no updates
 */
export async function openLoadedTorExits(
  config: Config,
  log: Logger,
  upkeep: 'fetched' | 'followed' | 'none',
): Promise<TorExits> {
  const { enabled, sources } = config.torExits;
  if (!enabled || sources.length === 0) return new TorExitList([]);
  const events: TorExitEvents = {
    onRefused: ({ name }, refused) => {
      log.error(
        { source: name, reason: refused.reason, err: refused },
        'Tor exit list rejected; the previous one stays in use',
      );
    },
    onList: ({ size, digest }) => {
      log.info({ exits: size, digest }, 'Tor exit list loaded');
    },
    onProblem: (problem, error) => {
      log.warn({ err: error }, problem);
    },
    onRecovered: (what) => {
      log.info(what);
    },
    onConnectionError: () => undefined, // ignored, because the failing read reports the error
  };
  const exits = await openTorExits(config, events, upkeep === 'followed');
  await exits.load();
  if (upkeep !== 'none') exits.start();
  return exits;
}
