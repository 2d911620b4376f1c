import { configDigest } from '../config/redact.js';
import type { Config } from '../config/schema.js';
import type { RunningGateway } from '../edge/start-gateway.js';
import type { LineSink } from '../telemetry/line-sink.js';
import { createLogger, type Logger } from '../telemetry/logger.js';
import type { Build } from '../telemetry/process-metrics.js';
import { version } from './version.js';

/** Time beyond the drain's delay and timeout until the process ends by force. */
const marginMilliseconds = 5_000;

/** What a process that ends by force gives to what is saved. */
export const saveMilliseconds = 1_000;

/** Has a part that has no file to look at again, and no access log, go on at the signals that ask for that, and say so. */
export function ignoreReloadSignals(log: Logger): void {
  for (const signal of ['SIGHUP', 'SIGUSR2'] as const)
    process.on(signal, () => {
      log.warn(`${signal} does nothing here: to read the configuration and its files again, restart`);
    });
}

/**
 * Starts a server and has it end with the process. A signal is heard from the first moment on, so that what is open by
 * then is closed also when the start is not over.
 * @param start opens one thing after the other, and says at once how each is closed, and what is saved also where that
 *   cannot be waited for
 */
export async function runServer(
  config: Pick<Config, 'limits'>,
  log: Logger,
  start: (
    closeLater: (close: () => Promise<void>) => void,
    saveAnyhow: (save: () => Promise<void>) => void,
  ) => Promise<void>,
): Promise<void> {
  const { drainDelaySeconds, drainTimeoutSeconds } = config.limits;
  const closers: (() => Promise<void>)[] = [];
  const savers: (() => Promise<void>)[] = [];
  const stop = async (): Promise<void> => {
    for (const close of closers.splice(0).toReversed()) await close();
  };
  const progress = { isStopping: false };
  // Listened to since the process began, for the sake of Node's debugger; whoever sends it expects something of it.
  process.on('SIGUSR1', () => {
    log.warn('SIGUSR1 does nothing here; SIGUSR2 opens the access log of a gateway anew');
  });
  let starting = Promise.resolve();
  const forget = stopOnSignal({
    stop: async () => {
      progress.isStopping = true;
      log.info('draining');
      await starting.catch(() => undefined); // what is just being opened is closed as well
      await stop();
      log.info('drained');
    },
    save: async () => {
      await Promise.allSettled(savers.map((save) => save()));
    },
    timeoutMilliseconds: () => (drainDelaySeconds + drainTimeoutSeconds) * 1000 + marginMilliseconds,
    onFailure: (error) => {
      log.fatal({ err: error }, 'ends with a failure');
    },
  });
  starting = start(
    (close) => {
      closers.push(close);
      if (progress.isStopping) throw new Error('told to stop during the start');
    },
    (save) => savers.push(save),
  );
  try {
    await starting;
  } catch (error) {
    if (progress.isStopping) return;
    forget();
    await stop();
    throw error;
  }
}

/** How a process ends. */
interface Ending {
  /** Ends everything that has been started by then. */
  readonly stop: () => Promise<void>;
  /** Puts what must not be lost where it is safe, in bounded time, where `stop` did not come to its end. */
  readonly save: () => Promise<void>;
  /** How long that may take. */
  readonly timeoutMilliseconds: () => number;
  /** Told of what nobody caught, and of a stop that failed or took too long, before the process ends with status 1. */
  readonly onFailure: (error: unknown) => void;
}

/** Signals that come within this time are one: npm and a process group pass the same Ctrl-C on, each by itself. */
const sameSignalMilliseconds = 1_000;

/**
 * Runs `stop` on SIGTERM, on SIGINT and on an error that nobody caught, and then ends the process. A later signal, or a
 * stop that takes too long, ends it by force.
 * @returns what takes the listeners back, for a start that failed
 */
function stopOnSignal({ stop, save, timeoutMilliseconds, onFailure }: Ending): () => void {
  let begunAt: number | null = null;
  const exit = (): void => {
    process.exit(1);
  };
  const force = (reason: string): void => {
    onFailure(new Error(`ended by force: ${reason}`));
    save().then(exit, exit);
  };
  const end = (status: number): void => {
    if (begunAt !== null) {
      if (performance.now() - begunAt > sameSignalMilliseconds) force('another signal');
      return;
    }
    begunAt = performance.now();
    setTimeout(() => {
      force('the time to stop is over');
    }, timeoutMilliseconds()).unref();
    stop().then(
      () => process.exit(status),
      (error: unknown) => {
        onFailure(error);
        save().then(exit, exit);
      },
    );
  };
  const onSignal = (): void => {
    end(0);
  };
  const onError = (error: unknown): void => {
    onFailure(error);
    end(1);
  };
  process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
  process.on('uncaughtException', onError).on('unhandledRejection', onError);
  return () => {
    process.off('SIGTERM', onSignal).off('SIGINT', onSignal);
    process.off('uncaughtException', onError).off('unhandledRejection', onError);
  };
}

/**
 * Drains a gateway, whose access log is whole then.
 * @throws Error where the end of the log could not be written, and is lost with the process: nobody may take that for a good end
 */
export async function drainGateway(
  gateway: Pick<RunningGateway, 'drain'>,
  accessLog: Pick<LineSink, 'heldBytes'>,
): Promise<void> {
  await gateway.drain();
  const left = accessLog.heldBytes();
  if (left > 0) throw new Error(`the end of the access log could not be written: ${left} bytes are lost`);
}

/** A part that begins: its log, and what runs. */
export interface Beginning {
  readonly log: Logger;
  readonly build: Build;
}

/** Opens the log of a part. Its first line says what runs, and with what configuration: replicas that differ can be told apart. */
export function beginLog(part: 'gateway' | 'registry' | 'services', config: Config): Beginning {
  const log = createLogger(config.log.level);
  const build = { version, config: configDigest(config) };
  log.info({ part, ...build, node: process.versions.node }, 'starting');
  return { log, build };
}
