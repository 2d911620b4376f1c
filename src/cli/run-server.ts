import { configDigest } from '../config/redact.js';
import type { Config } from '../config/schema.js';
import type { RunningGateway } from '../edge/start-gateway.js';
import type { LineSink } from '../telemetry/line-sink.js';
import { createLogger, type Logger } from '../telemetry/logger.js';
import type { Build } from '../telemetry/process-metrics.js';
import { sameSignalMilliseconds } from './interruption.js';
import { version } from './version.js';

/** Time added to drain delay and drain timeout. If a shutdown takes longer than the sum, the process exits by force. */
const marginMilliseconds = 5_000;

/** Maximum time that a forced exit spends on saving data, such as the last lines of the access log. */
export const saveMilliseconds = 1_000;

/**
 * Handles the reload signals SIGHUP and SIGUSR2 of a server without an access log. SIGHUP reloads changed certificate
 * files. A signal without an effect is logged as a warning.
 * @param certFile a certificate of the server; null if the server has no TLS listener, so that SIGHUP has no effect
 * @param reload reloads changed files; returns undefined if the server has not started
 */
export function onReloadSignals(log: Logger, certFile: string | null, reload: () => Promise<void> | undefined): void {
  const warn = (signal: string, rest: string) => () => {
    log.warn(`${signal} has no effect on this process; restart it to reload the configuration${rest}`);
  };
  if (certFile === null) process.on('SIGHUP', warn('SIGHUP', ' and its files'));
  else process.on('SIGHUP', () => void reload());
  process.on(
    'SIGUSR2',
    warn('SIGUSR2', certFile === null ? ' and its files' : '; SIGHUP reloads only a changed certificate'),
  );
}

/**
 * Starts a server, and closes its resources before the process exits. Handles signals from the beginning, so that a
 * signal during the start closes everything that is already open.
 * @param start opens the resources one by one. For each resource, it calls `closeLater` with a function that closes the
 *   resource; these functions run in reverse order. If one fails or the exit is forced, the functions given to
 *   `saveAnyhow` run.
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
  const closeFunctions: (() => Promise<void>)[] = [];
  const savers: (() => Promise<void>)[] = [];
  const stop = async (): Promise<void> => {
    for (const close of closeFunctions.splice(0).toReversed()) await close();
  };
  const progress = { isStopping: false };
  // Without a listener, SIGUSR1 would open Node's debugger, so main.ts ignores it. Warn that the signal has no effect.
  process.on('SIGUSR1', () => {
    log.warn('SIGUSR1 has no effect; SIGUSR2 reopens the access log of a gateway');
  });
  let starting = Promise.resolve();
  const forget = stopOnSignal({
    stop: async () => {
      progress.isStopping = true;
      log.info('draining');
      await starting.catch(() => undefined); // wait, so that a resource that is still being opened is closed too
      await stop();
      log.info('drained');
    },
    save: async () => {
      await Promise.allSettled(savers.map((save) => save()));
    },
    timeoutMilliseconds: () => (drainDelaySeconds + drainTimeoutSeconds) * 1000 + marginMilliseconds,
    onFailure: (error) => {
      log.fatal({ err: error }, 'fatal error; the process exits');
    },
  });
  starting = start(
    (close) => {
      closeFunctions.push(close);
      if (progress.isStopping) throw new Error('a stop signal arrived during the start');
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

/** What a process does when it ends. */
interface ShutdownHandlers {
  /** Stops everything that has been started. */
  readonly stop: () => Promise<void>;
  /** Saves data that must survive even if `stop` fails or is too slow. Must finish in bounded time. */
  readonly save: () => Promise<void>;
  /** Returns the maximum time for `stop`. */
  readonly timeoutMilliseconds: () => number;
  /**
   * Called with an uncaught error, the error of `stop`, or the reason of a forced exit. The process then exits with
   * code 1.
   */
  readonly onFailure: (error: unknown) => void;
}

/**
 * Runs `stop` on SIGTERM, SIGINT or an uncaught error, and then exits. If `stop` fails or times out, or a second signal
 * arrives, runs `save` and exits with code 1.
 * @returns a function that removes the listeners, for a failed start
 */
function stopOnSignal({ stop, save, timeoutMilliseconds, onFailure }: ShutdownHandlers): () => void {
  let isStopping = false;
  let signalledAt: number | null = null;
  let status = 0;
  const exit = (): void => {
    process.exit(1);
  };
  const force = (reason: string): void => {
    onFailure(new Error(`forced exit: ${reason}`));
    save().then(exit, exit);
  };
  const begin = (): void => {
    if (isStopping) return;
    isStopping = true;
    setTimeout(() => {
      force('the shutdown took longer than limits.drainDelaySeconds plus limits.drainTimeoutSeconds');
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
    const now = performance.now();
    if (signalledAt !== null && now - signalledAt > sameSignalMilliseconds) force('a second stop signal arrived');
    signalledAt ??= now;
    begin();
  };
  const onError = (error: unknown): void => {
    onFailure(error);
    status = 1;
    begin(); // If the process is already stopping, that stop continues: requests in flight still get their responses.
  };
  process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
  process.on('uncaughtException', onError).on('unhandledRejection', onError);
  return () => {
    process.off('SIGTERM', onSignal).off('SIGINT', onSignal);
    process.off('uncaughtException', onError).off('unhandledRejection', onError);
  };
}

/**
 * Drains a gateway: waits until its requests in flight have ended. Then checks that the access log is complete.
 * @throws Error if log lines could not be written or synced to the disk, so that the exit code shows the loss
 */
export async function drainGateway(
  gateway: Pick<RunningGateway, 'drain'>,
  accessLog: Pick<LineSink, 'heldBytes' | 'problem'>,
): Promise<void> {
  await gateway.drain();
  const left = accessLog.heldBytes();
  if (left > 0) throw new Error(`the last ${left} bytes of the access log could not be written and are lost`);
  const problem = accessLog.problem();
  if (problem !== null) throw new Error(`the disk may have lost the last lines of the access log: ${problem}`);
}

/** The logger and the build (version and configuration digest) of a server that starts. */
export interface PartLog {
  readonly log: Logger;
  readonly build: Build;
}

/**
 * Opens the log of a server. Its first line contains the version and the configuration digest, so that replicas can be
 * compared.
 */
export function startLog(part: 'gateway' | 'registry' | 'services', config: Config): PartLog {
  const log = createLogger(config.log.level);
  const build = { version, config: configDigest(config) };
  log.info({ part, ...build, node: process.versions.node }, 'starting');
  return { log, build };
}
