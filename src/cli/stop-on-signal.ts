/** How a process ends. */
export interface Ending {
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
export function stopOnSignal({ stop, save, timeoutMilliseconds, onFailure }: Ending): () => void {
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
