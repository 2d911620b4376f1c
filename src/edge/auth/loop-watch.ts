/** Interval of the timer that measures the delay. */
const tickMilliseconds = 20;
const windowMilliseconds = 1000;
/**
 * Consecutive slow windows that mean overload. One long pause, of the garbage collector or the machine, is not
 * overload.
 */
const slowWindows = 2;

/**
 * Watches the event loop delay. A growing delay means that requests arrive faster than the process can decide them.
 * Every further request would slow down all others, so the gateway refuses it early.
 */
export class LoopWatch {
  readonly #limit: number;
  #slow = 0;
  #overloaded = false;
  #delay = 0;

  /** @param limitMilliseconds mean delay above which the process is overloaded; 0: disabled */
  constructor(limitMilliseconds: number) {
    this.#limit = limitMilliseconds;
  }

  /**
   * Starts watching this process.
   * @param onChange called with the problem when the overload starts, and with null when it ends
   * @returns a function that stops the watch
   */
  start(onChange: (problem: string | null) => void): () => void {
    if (this.#limit === 0) return () => undefined;
    let windowBeganAt = performance.now();
    let ticks = 0;
    // The mean delay follows from the number of ticks; Node's event loop histogram would take 360 KB.
    const timer = setInterval(() => {
      ticks += 1;
      const elapsed = performance.now() - windowBeganAt;
      if (elapsed < windowMilliseconds) return;
      const before = this.#overloaded;
      this.note(Math.max(0, elapsed / ticks - tickMilliseconds));
      windowBeganAt += elapsed;
      ticks = 0;
      if (before !== this.#overloaded) onChange(this.problem());
    }, tickMilliseconds).unref();
    return () => {
      clearInterval(timer);
    };
  }

  /** Records the mean delay of one window in milliseconds. An overload ends only at half of the limit (hysteresis). */
  note(delayMilliseconds: number): void {
    this.#delay = delayMilliseconds;
    this.#slow = delayMilliseconds > this.#limit ? this.#slow + 1 : 0;
    if (this.#overloaded) this.#overloaded = delayMilliseconds > this.#limit / 2;
    else this.#overloaded = this.#limit > 0 && this.#slow >= slowWindows;
  }

  /** Description of the overload for operators; null if the process keeps up. */
  problem(): string | null {
    return this.#overloaded ? `the event loop is ${Math.round(this.#delay)} ms late` : null;
  }
}
