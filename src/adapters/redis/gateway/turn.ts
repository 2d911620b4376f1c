const checkMilliseconds = 25;
const checks = 10;

/** A signal for which many callers can wait, each for at most 250 ms. */
export class Signal {
  #coming: Promise<void> | null = null;
  #end: () => void = () => undefined;

  /** Resolves at the next signal, or after 250 ms. */
  next(): Promise<void> {
    this.#coming ??= new Promise((resolve) => {
      let left = checks;
      // Uses many short intervals instead of one timer: after a stall of the process, a long timer would fire before
      // Node has read the pending replies.
      const timer = setInterval(() => {
        left -= 1;
        if (left === 0) this.come();
      }, checkMilliseconds);
      const end = (): void => {
        clearInterval(timer);
        resolve();
      };
      this.#end = end;
    });
    return this.#coming;
  }

  /** Sends the signal to all waiting callers. */
  come(): void {
    this.#coming = null;
    this.#end();
  }
}
