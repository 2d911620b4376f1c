import { hostname } from 'node:os';
import { GeoIpDatabases } from '../../adapters/geoip/geoip-databases.js';
import { MemoryRecords } from '../../adapters/memory/memory-records.js';
import { readRecordsFile } from '../../adapters/memory/records-file.js';
import { TorExitList } from '../../adapters/tor/tor-exit-list.js';
import { OperatorError } from '../../config/operator-error.js';
import { fileProblemOf, readSecretFile } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
import type { GeoIp, Records, TorExits } from '../../gateway/ports.js';
import { RecordKeyStore } from '../../gateway/record-key-store.js';
import type { RecordProblem } from '../../gateway/records.js';
import type { GatewayPorts } from '../../edge/start-gateway.js';
import { type LogSecret, logSecretOf } from '../../telemetry/chain.js';
import { ChainedLog, type ChainedLogOptions } from '../../telemetry/chained-log.js';
import type { LineSink } from '../../telemetry/line-sink.js';
import { NoLogFile, requireLogFile } from '../../telemetry/log-file.js';
import type { Logger } from '../../telemetry/logger.js';
import { version } from '../version.js';
import { openCheckpoints } from './checkpoints.js';
import { openIdentity } from './identity.js';
import { readPepper } from './key-secrets.js';
import { openRedisRecords } from './redis-records.js';
import { RedisSelfCheck } from './redis-self-check.js';
import { openSharedRate } from './shared-rate.js';
import { systemClock } from './system-clock.js';
import { openTorExits, type TorExitEvents } from './tor-exits.js';
import { openTraces } from './traces.js';

/**
 * Opens everything outside the process that the gateway asks: the adapters that the configuration names.
 * @param given what is open already, and whether this process fetches the list of Tor exits or leaves that to another
 * @throws OperatorError
 */
export async function openPorts(
  config: Config,
  log: Logger,
  { records, fetchesTorExits = true }: { readonly records?: Records; readonly fetchesTorExits?: boolean } = {},
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
    const held = records ?? opened(await openRecords(config, log, check));
    return {
      selfCheck: check,
      keyStore: new RecordKeyStore(held),
      recordCache: () => held.cacheFigures(),
      torExits: opened(await openLoadedTorExits(config, log, fetchesTorExits ? 'fetched' : 'followed')),
      geoIp: opened(await openGeoIp(config, log)),
      sharedRate: opened(await openSharedRate(config, log)),
      pepper: await readPepper(config.keys.pepperFile),
      identity: await openIdentity(config),
      clock: systemClock,
      traces: await openTraces(config, log),
      logSecret,
      accessLog: openAccessLog(config, { secret: logSecret, checkpoints: await openCheckpoints(config, log) }, log),
      ...reports(log),
    };
  } catch (error) {
    // What is open would keep the process, which would go on to confirm changes as if it took requests.
    for (const close of closers.toReversed()) await close();
    throw error;
  }
}

/** Tells an operator what becomes of the gateway. */
function reports(
  log: Logger,
): Pick<
  GatewayPorts,
  'onInternalError' | 'onCertificateChange' | 'onCertificateWarning' | 'onOverload' | 'onUnsolicitedBytes'
> {
  return {
    onInternalError: (error, requestId) => {
      log.error({ err: error, requestId }, 'a request failed in a way that was not foreseen');
    },
    onCertificateChange: ({ result, problem }) => {
      if (result === 'replaced') log.info('certificates replaced');
      else if (result === 'restored') log.info('the certificates in use are in their files again');
      else log.error({ problem }, 'the new certificates cannot be used; the ones before stay');
    },
    onCertificateWarning: (warning, isOver) => {
      if (isOver) log.error(`clients refuse to connect: ${warning}`);
      else log.warn(`${warning}: renew it`);
    },
    onOverload: (problem) => {
      if (problem === null) log.warn('the overload is over: requests are taken again');
      else log.error({ problem }, 'overloaded: requests are refused with 503');
    },
    onUnsolicitedBytes: (upstream) => {
      log.error(
        { upstream },
        'an upstream sent bytes that no request had asked for: its idle connections are closed, and for a minute each ' +
          'connection carries one request; check the service, because a caller may have received the response to another request',
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
            'the access log has only its reserve of room left: make room on its disk',
          );
        else log.info({ destination }, 'the access log has more room than its reserve again');
      },
      onReopenFailure: (error) => {
        log.error(
          { err: error, destination },
          'the access log was moved and cannot be opened anew; it goes on in the old file',
        );
      },
      onReopened: () => {
        log.info({ destination }, 'the access log goes on in a new file');
      },
      onOtherWriter: () => {
        log.error(
          { destination },
          'something else writes to the access log as well: give each gateway a file of its own',
        );
      },
      onProblem: (problem) => {
        if (problem === null) log.info('the access log is written again');
        else log.error({ problem }, 'the access log cannot be written');
      },
    });
    if (proof.secret === null && proof.checkpoints === null)
      log.warn('accessLog.secretFile is not set: a changed access log can be given a new chain by anybody');
    // What log rotation sends when it has moved the file.
    process.on('SIGUSR2', () => {
      opened.reopen();
    });
    return opened;
  } catch (error) {
    const advice = 'name a file that this user may write, or stdout';
    const problem = error instanceof NoLogFile ? error.message : fileProblemOf(error);
    throw new OperatorError(`The access log ${destination} cannot be opened for appending: ${problem}; ${advice}.`, {
      cause: error,
    });
  }
}

/** Opens the records that the configuration names. */
export async function openRecords(config: Config, log: Logger, check: RedisSelfCheck | null = null): Promise<Records> {
  const onMalformed = (storeKey: string, problem: string, reason: RecordProblem = 'malformed'): void => {
    log.error({ storeKey, problem, reason }, 'a record cannot be used; whoever has its key gets 503');
  };
  const { kind, memory } = config.keyStore;
  if (kind === 'redis') return openRedisRecords(config, log, onMalformed, check);
  const stored = memory.recordsFile === null ? {} : await readRecordsFile(memory.recordsFile);
  return new MemoryRecords(stored, onMalformed);
}

/** Opens the databases about addresses; null where the configuration names none. */
export async function openGeoIp({ geoip, torExits }: Config, log: Logger): Promise<GeoIp | null> {
  // Where exits are not refused, nobody is asked for them.
  const files = { ...geoip, anonymousIpFile: torExits.enabled ? geoip.anonymousIpFile : null };
  if (Object.values(files).every((file) => file === null)) return null;
  return GeoIpDatabases.open(files, {
    denyWhenUnavailable: torExits.whenUnavailable === 'deny',
    onReload: () => {
      log.info('a database about addresses was replaced, and is in use');
    },
    onProblem: (error) => {
      log.error({ err: error }, 'a database about addresses cannot be used; where there is one before, it stays');
    },
  });
}

/**
 * Opens the list of Tor exits with what is kept of it. A list that takes time to fetch does not hold up the start: until it
 * is there, the gateway is not ready.
 * @param upkeep what becomes of it from now on: it is fetched, what another process fetches is taken over, or nothing
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
        'a Tor exit list was refused; the one before stays',
      );
    },
    onList: ({ size, digest }) => {
      log.info({ exits: size, digest }, 'a list of Tor exits is in force');
    },
    onProblem: (problem, error) => {
      log.warn({ err: error }, problem);
    },
    onRecovered: (what) => {
      log.info(what);
    },
    onConnectionError: () => undefined, // a reading that fails for it is told
  };
  const exits = await openTorExits(config, events, upkeep === 'followed');
  await exits.load();
  if (upkeep !== 'none') exits.start();
  return exits;
}

/** Reads the secret of the access log. */
export async function readLogSecret(file: string | null): Promise<LogSecret> {
  return file === null ? null : logSecretOf(await readSecretFile(file, 'The secret of the access log'));
}
