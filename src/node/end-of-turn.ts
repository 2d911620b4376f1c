let waiting: (() => void)[] = [];

/**
 * Runs the callback at the end of this turn of the event loop, after all pending input was read, so that writes are
 * sent together. Each separate write would wake a receiver that has just gone to sleep, and the wake-up costs the
 * writer more than the write itself.
 */
export function atEndOfTurn(callback: () => void): void {
  if (waiting.length === 0) setImmediate(callAll);
  waiting.push(callback);
}

function callAll(): void {
  const due = waiting;
  waiting = [];
  for (const callback of due) callback();
}
