let waiting: (() => void)[] = [];

/**
 * Calls back at the end of this turn of the event loop, when everything that had come has been read. What is written then
 * goes out one behind the other: written at once, each piece would wake a process at the other end that has just gone to
 * sleep, and waking it costs the writer more than the write.
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
