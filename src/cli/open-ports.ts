import { readRecordsFile } from '../adapters/memory/records-file.js';
import { MemoryRecords } from '../adapters/memory/memory-records.js';
import { RefreshedTorExits } from '../adapters/tor/refreshed-tor-exits.js';
import { readTorExitFiles, TorExitList } from '../adapters/tor/tor-exit-list.js';
import { OperatorError } from '../config/operator-error.js';
import { readOperatorFile } from '../config/operator-file.js';
import type { Config } from '../config/schema.js';
import type { Records, TorExits } from '../gateway/ports.js';
import { RecordKeyStore } from '../gateway/record-key-store.js';
import { openRedisRecords } from './open-redis-records.js';
import type { GatewayPorts } from '../http/start-gateway.js';
import { openLineSink } from '../telemetry/line-sink.js';
import type { LineSink } from '../telemetry/line-sink.js';
import type { Logger } from '../telemetry/logger.js';
import { openIdentity } from './identity-keys.js';
import { systemClock } from './system-clock.js';

const maxPepperBytes = 4096;
const minPepperBytes = 16;

/**
 * Opens everything outside the process that the gateway asks: the adapters that the configuration names.
 * @param records where the records are, if that is open already; without it, what the configuration says is opened
 * @throws OperatorError
 */
export async function openPorts(config: Config, log: Logger, records?: Records): Promise<GatewayPorts> {
  return {
    keyStore: new RecordKeyStore(records ?? (await openRecords(config, log))),
    torExits: await openTorExits(config, log),
    pepper: await readPepper(config.keys.pepperFile),
    identity: await openIdentity(config),
    clock: systemClock,
    accessLog: openAccessLog(config.accessLog.destination),
    onInternalError: (error, requestId) => {
      log.error({ err: error, requestId }, 'a request failed in a way that was not foreseen');
    },
  };
}

function openAccessLog(destination: string): LineSink {
  try {
    return openLineSink(destination);
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

/** Reads the pepper of look-up ids; a line end behind it is the editor's, not the secret's. */
export async function readPepper(file: string | null): Promise<Buffer | null> {
  if (file === null) return null;
  const contents = await readOperatorFile(file, 'The pepper', maxPepperBytes);
  const pepper = Buffer.from(contents.toString('latin1').replace(/\r?\n$/, ''), 'latin1');
  if (pepper.length < minPepperBytes) {
    throw new OperatorError(`The pepper ${file} is shorter than ${minPepperBytes} bytes.`);
  }
  return pepper;
}
