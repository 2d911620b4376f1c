/** A message is written so often in a window, and then counted alone. */
const mostInWindow = 20;
/** Messages are a fixed set of sentences; this is a guard, not a limit that is met. */
const mostMessages = 1_000;

/** Counts the messages of a log, so that one that comes with every request does not fill the disk. */
export class RepeatedLines {
  readonly #windowMilliseconds: number;
  #counts = new Map<string, number>();
  #windowEnd = 0;

  constructor(windowMilliseconds: number) {
    this.#windowMilliseconds = windowMilliseconds;
  }

  /**
   * Says whether a message may be written now.
   * @param now milliseconds on a clock that nobody sets
   */
  admit(message: string, now: number): boolean {
    if (now >= this.#windowEnd) {
      this.#counts.clear();
      this.#windowEnd = now + this.#windowMilliseconds;
    }
    const count = (this.#counts.get(message) ?? 0) + 1;
    if (count === 1 && this.#counts.size >= mostMessages) return false;
    this.#counts.set(message, count);
    return count <= mostInWindow;
  }

  /** The messages of this window that were left out, and how often; a new window begins. */
  takeLeftOut(): [message: string, count: number][] {
    const leftOut = [...this.#counts].filter(([, count]) => count > mostInWindow);
    this.#counts = new Map();
    this.#windowEnd = 0;
    return leftOut.map(([message, count]) => [message, count - mostInWindow]);
  }
}
