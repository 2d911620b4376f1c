/** As often as this the loop is asked for a turn. */
const tickMilliseconds = 20;
const windowMilliseconds = 1000;
/** So many windows in a row have to be slow: one long pause, of a collection or of the machine, is no overload. */
const slowWindows = 2;

/**
 * Watches the delay of the event loop. Where it grows, requests come in faster than they can be decided: each further
 * one only makes all of them slower, so it is better refused at once.
 */
export class LoopWatch {
  readonly #limit: number;
  #slow = 0;
  #overloaded = false;
  #delay = 0;

  /** @param limitMilliseconds mean delay above which the process counts as overloaded; 0: never */
  constructor(limitMilliseconds: number) {
    this.#limit = limitMilliseconds;
  }

  /**
   * Watches this process.
   * @param onChange told when the overload begins and when it ends
   * @returns what ends the watching
   */
  start(onChange: (problem: string | null) => void): () => void {
    if (this.#limit === 0) return () => undefined;
    let windowBeganAt = performance.now();
    let ticks = 0;
    // A count of ticks tells their mean delay; Node's histogram of them would take 360 KB.
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

  /** Takes the mean delay of one window, in milliseconds. What has begun ends only at half of the limit. */
  note(delayMilliseconds: number): void {
    this.#delay = delayMilliseconds;
    this.#slow = delayMilliseconds > this.#limit ? this.#slow + 1 : 0;
    if (this.#overloaded) this.#overloaded = delayMilliseconds > this.#limit / 2;
    else this.#overloaded = this.#limit > 0 && this.#slow >= slowWindows;
  }

  /** What is wrong, in words for an operator; null while the process keeps up. */
  problem(): string | null {
    return this.#overloaded ? `the event loop is ${Math.round(this.#delay)} ms late` : null;
  }
}
