/** A clock and timers that the test moves on by hand. */
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

  /** How long until the next timer; null where there is none. */
  get untilNext(): number | null {
    return this.#timers.length === 0 ? null : Math.min(...this.#timers.map(({ at }) => at)) - this.#now;
  }

  /** Lets time pass, and what is due happen in its order. */
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

/** Lets everything else go on until this is so. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await new Promise(setImmediate);
}

/** Once this is so, lets time pass until the promise has settled. */
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
    // A real database takes real time.
    await new Promise((resolve) => setTimeout(resolve, 25));
    if (state.isSettled) return promise;
    time.advance(time.untilNext ?? 0);
  }
}
