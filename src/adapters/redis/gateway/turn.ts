const lookMilliseconds = 25;
const looks = 10;

/** What many wait for together, and none for longer than some time. */
export class Turn {
  #coming: Promise<void> | null = null;
  #end: () => void = () => undefined;

  /** Resolves when it has come, or a quarter of a second is over. */
  next(): Promise<void> {
    this.#coming ??= new Promise((resolve) => {
      let left = looks;
      // Many short times: one long time is over before anything is read where this process was held up for as long.
      const timer = setInterval(() => {
        left -= 1;
        if (left === 0) this.come();
      }, lookMilliseconds);
      const end = (): void => {
        clearInterval(timer);
        resolve();
      };
      this.#end = end;
    });
    return this.#coming;
  }

  /** It has come. */
  come(): void {
    this.#coming = null;
    this.#end();
  }
}
