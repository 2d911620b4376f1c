let waiting: (() => void)[] = [];

/**
 * Calls back at the end of this turn of the event loop, after all pending input has been read. Writes made then go out
 * together. Separate writes would each wake a receiver that has just gone to sleep, and the wake-up costs the writer
 * more than the write.
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
