import type { Config } from '../config/schema.js';
import type { Logger } from '../telemetry/logger.js';
import { stopOnSignal } from './stop-on-signal.js';

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
