import { constants } from 'node:os';
import { OperatorError } from '../config/operator-error.js';

/** Thrown by a command that a signal has interrupted. `status` is the exit code that a shell reports for the signal. */
export class Interrupted extends OperatorError {
  readonly status: number;

  constructor(message: string, signal: NodeJS.Signals, options?: ErrorOptions) {
    super(message, options);
    this.status = 128 + constants.signals[signal];
  }
}

const signals = ['SIGINT', 'SIGTERM'] as const;

/** Signals within this time count as one. A single Ctrl-C can arrive twice: from the terminal, and forwarded by npm. */
export const sameSignalMilliseconds = 1_000;

/**
 * Runs `act`. The first SIGINT or SIGTERM aborts the AbortSignal of `act`, so that `act` can end without half-done
 * work. A second SIGINT or SIGTERM, at least a second later, ends the process at once.
 * @throws Interrupted in place of an OperatorError that `act` throws after SIGINT or SIGTERM
 */
export async function interruptible<Result>(act: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
  const controller = new AbortController();
  let first: { readonly name: NodeJS.Signals; readonly at: number } | null = null;
  const forget = (): void => {
    for (const name of signals) process.removeListener(name, stop);
  };
  const stop = (name: NodeJS.Signals): void => {
    const now = performance.now();
    first ??= { name, at: now };
    controller.abort();
    if (now - first.at <= sameSignalMilliseconds) return;
    forget();
    process.kill(process.pid, name);
  };
  for (const name of signals) process.on(name, stop);
  try {
    return await act(controller.signal);
  } catch (error) {
    const signal = first as { readonly name: NodeJS.Signals } | null; // TypeScript does not see that `stop` assigns it
    if (signal === null || !(error instanceof OperatorError)) throw error;
    throw new Interrupted(error.message, signal.name, { cause: error });
  } finally {
    forget();
  }
}

/**
 * Runs `act` to its end even if SIGINT or SIGTERM arrives. Otherwise its result, such as a new key, would be lost.
 * A second signal, at least a second later, ends the process at once.
 * @throws Interrupted after `act` if SIGINT or SIGTERM arrived
 */
export function completely<Result>(act: () => Promise<Result>): Promise<Result> {
  return interruptible(async (signal) => {
    const result = await act();
    if (signal.aborted) throw new OperatorError('Interrupted.');
    return result;
  });
}
