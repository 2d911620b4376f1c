/** A clock and timers that only the test advances. */
export class ManualTime {
  #now = Date.UTC(2026, 0, 15, 12);
  #timers: { at: number; act: () => void }[] = [];

  now = (): number => this.#now;

  monotonic = (): number => this.#now;

  after = (milliseconds: number, act: () => void): (() => void) => {
    const timer = { at: this.#now + milliseconds, act };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((one) => one !== timer);
    };
  };

  /** Milliseconds until the next timer; null without timers. */
  get untilNext(): number | null {
    return this.#timers.length === 0 ? null : Math.min(...this.#timers.map(({ at }) => at)) - this.#now;
  }

  /** Advances the clock and runs due timers in order. */
  advance(milliseconds: number): void {
    const end = this.#now + milliseconds;
    for (;;) {
      const due = this.#timers.filter(({ at }) => at <= end).toSorted((a, b) => a.at - b.at)[0];
      if (due === undefined) break;
      this.#timers = this.#timers.filter((one) => one !== due);
      this.#now = Math.max(this.#now, due.at);
      due.act();
    }
    this.#now = end;
  }
}

/**
 * Waits until the condition holds, at most a minute. Between two checks it sleeps, because a spinning test would take
 * CPU time from others.
 */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = performance.now() + 60_000; !(await isSo());) {
    if (performance.now() > end) throw new Error(`never: ${String(isSo)}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Waits for the condition, then advances the clock from timer to timer until the promise has settled. */
export async function outwait<Result>(
  time: ManualTime,
  promise: Promise<Result>,
  isSo: () => boolean | Promise<boolean> = () => true,
): Promise<Result> {
  const state = { isSettled: false };
  void promise.catch(() => undefined).finally(() => (state.isSettled = true));
  await until(async () => state.isSettled || (await isSo()));
  for (;;) {
    for (let turn = 0; turn < 50; turn += 1) await new Promise(setImmediate);
    // A real database needs real time.
    await new Promise((resolve) => setTimeout(resolve, 25));
    if (state.isSettled) return promise;
    time.advance(time.untilNext ?? 0);
  }
}
