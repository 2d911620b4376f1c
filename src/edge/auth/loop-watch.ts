/** Interval of the timer that measures the event loop delay. */
const tickMilliseconds = 20;
const windowMilliseconds = 1000;
/**
 * Number of consecutive slow windows that count as overload. A single long pause of the garbage collector or of the
 * machine is not overload.
 */
const slowWindows = 2;

/**
 * Measures the event loop delay. A growing delay means that requests arrive faster than the process can handle them.
 * During such an overload, the gateway rejects further requests early, because each would slow down all others.
 */
export class LoopWatch {
  readonly #limit: number;
  #slow = 0;
  #overloaded = false;
  #delay = 0;

  /** @param limitMilliseconds mean delay above which the process is overloaded; 0 disables the detection */
  constructor(limitMilliseconds: number) {
    this.#limit = limitMilliseconds;
  }

  /**
   * Starts measuring the event loop delay of this process.
   * @param onChange called with the problem when the overload starts, and with null when it ends
   * @returns a function that stops the measurement
   */
  start(onChange: (problem: string | null) => void): () => void {
    if (this.#limit === 0) return () => undefined;
    let windowBeganAt = performance.now();
    let ticks = 0;
    // The number of ticks gives the mean delay. Node's event loop histogram would give it too, but takes 360 KB.
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

  /**
   * Records the mean delay of one window, in milliseconds. For hysteresis, an overload ends only when the delay has
   * fallen to half of the limit.
   */
  note(delayMilliseconds: number): void {
    this.#delay = delayMilliseconds;
    this.#slow = delayMilliseconds > this.#limit ? this.#slow + 1 : 0;
    if (this.#overloaded) this.#overloaded = delayMilliseconds > this.#limit / 2;
    else this.#overloaded = this.#limit > 0 && this.#slow >= slowWindows;
  }

  /** Returns why the process is overloaded, for operators; null if it is not. */
  problem(): string | null {
    return this.#overloaded ? `the event loop is delayed by ${Math.round(this.#delay)} ms` : null;
  }
}
