/** A signal that is given when the process is told to end; a second time it ends at once. */
export interface Interruption {
  readonly signal: AbortSignal;
  /** Lets the process end as it would. */
  readonly forget: () => void;
}

const signals = ['SIGINT', 'SIGTERM'] as const;

/** Listens for an interruption, so that what is under way can say how far it came. */
export function untilInterrupted(): Interruption {
  const controller = new AbortController();
  const forget = (): void => {
    for (const name of signals) process.removeListener(name, stop);
  };
  const stop = (): void => {
    forget();
    controller.abort();
  };
  for (const name of signals) process.once(name, stop);
  return { signal: controller.signal, forget };
}
