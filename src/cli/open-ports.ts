import { readRecordsFile } from '../adapters/memory/records-file.js';
import { MemoryRecords } from '../adapters/memory/memory-records.js';
import { RefreshedTorExits } from '../adapters/tor/refreshed-tor-exits.js';
import { readTorExitFiles, TorExitList } from '../adapters/tor/tor-exit-list.js';
import { OperatorError } from '../config/operator-error.js';
import type { Config } from '../config/schema.js';
import { readSecretFile } from '../config/secret-file.js';
import type { Records, TorExits } from '../gateway/ports.js';
import { RecordKeyStore } from '../gateway/record-key-store.js';
import { openRedisRecords } from './open-redis-records.js';
import type { GatewayPorts } from '../http/start-gateway.js';
import { logSecretOf } from '../telemetry/chain.js';
import type { LogSecret } from '../telemetry/chain.js';
import { ChainedLog } from '../telemetry/chained-log.js';
import type { LineSink } from '../telemetry/line-sink.js';
import type { Logger } from '../telemetry/logger.js';
import { openIdentity } from './identity-keys.js';
import { systemClock } from './system-clock.js';

/**
 * Opens everything outside the process that the gateway asks: the adapters that the configuration names.
 * @param records where the records are, if that is open already; without it, what the configuration says is opened
 * @throws OperatorError
 */
export async function openPorts(config: Config, log: Logger, records?: Records): Promise<GatewayPorts> {
  const logSecret = await readLogSecret(config.accessLog.secretFile);
  return {
    keyStore: new RecordKeyStore(records ?? (await openRecords(config, log))),
    torExits: await openTorExits(config, log),
    pepper: await readPepper(config.keys.pepperFile),
    identity: await openIdentity(config),
    clock: systemClock,
    logSecret,
    accessLog: openAccessLog(config, logSecret, log),
    onInternalError: (error, requestId) => {
      log.error({ err: error, requestId }, 'a request failed in a way that was not foreseen');
    },
    onCertificateChange: ({ problem }) => {
      if (problem === null) log.info('certificates replaced');
      else log.error({ problem }, 'the new certificates cannot be used; the ones before stay');
    },
    onOverload: (problem) => {
      if (problem === null) log.warn('the overload is over: requests are taken again');
      else log.error({ problem }, 'overloaded: requests are refused with 503');
    },
  };
}

function openAccessLog({ accessLog, environment }: Config, secret: LogSecret, log: Logger): LineSink {
  const { destination } = accessLog;
  try {
    const opened = new ChainedLog({
      destination,
      secret,
      environment,
      now: () => systemClock.now(),
      onReopenFailure: (error) => {
        log.error(
          { err: error, destination },
          'the access log was moved and cannot be opened anew; it goes on in the old file',
        );
      },
    });
    if (secret === null)
      log.warn('accessLog.secretFile is not set: a changed access log can be given a new chain by anybody');
    // What log rotation sends when it has moved the file.
    process.on('SIGUSR2', () => {
      opened.reopen();
    });
    return opened;
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? 'unknown reason';
    throw new OperatorError(`The access log ${destination} cannot be opened for appending: ${reason}.`, {
      cause: error,
    });
  }
}

/** Opens the records that the configuration names. */
export async function openRecords(config: Config, log: Logger): Promise<Records> {
  const onMalformed = (storeKey: string, problem: string): void => {
    log.error({ storeKey, problem }, 'a record cannot be used; whoever has its key gets 503');
  };
  const { kind, memory } = config.keyStore;
  if (kind === 'redis') return openRedisRecords(config, log, onMalformed);
  const stored = memory.recordsFile === null ? {} : await readRecordsFile(memory.recordsFile);
  return new MemoryRecords(stored, onMalformed);
}

async function openTorExits({ torExits }: Config, log: Logger): Promise<TorExits> {
  if (!torExits.enabled) return new TorExitList([]);
  return RefreshedTorExits.start({
    everyMinutes: torExits.refreshMinutes,
    read: async () => {
      const list = await readTorExitFiles(torExits.sources, torExits.allowReserved);
      log.info({ exits: list.size }, 'Tor exit list read');
      return list;
    },
    onFailure: (error) => {
      log.error({ err: error }, 'the Tor exit list could not be read again; the one before stays');
    },
  });
}

/** Reads the pepper of look-up ids. */
export async function readPepper(file: string | null): Promise<Buffer | null> {
  return file === null ? null : readSecretFile(file, 'The pepper');
}

/** Reads the secret of the access log. */
export async function readLogSecret(file: string | null): Promise<LogSecret> {
  return file === null ? null : logSecretOf(await readSecretFile(file, 'The secret of the access log'));
}
