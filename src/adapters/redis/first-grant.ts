/** How long a gateway that has started waits for its grant before it takes traffic without one. */
const patienceMilliseconds = 2_000;

/** The first grant of a gateway. Without one it asks Redis for each request, so it is worth a short wait. */
export class FirstGrant {
  readonly #onNotice: (notice: string) => void;
  #since: number | null = null;
  #isOver = false;

  /** @param onNotice told when it is waited for no more */
  constructor(onNotice: (notice: string) => void) {
    this.#onNotice = onNotice;
  }

  /** Why no traffic should come yet; null where it may. */
  get reason(): string | null {
    const waits = !this.#isOver && this.#since !== null && performance.now() - this.#since < patienceMilliseconds;
    return waits ? 'waiting for the registry to enrol this gateway' : null;
  }

  /** Takes in a beat that succeeded. @param hasLeave whether the gateway may hold records */
  beat(hasLeave: boolean): void {
    if (this.#isOver) return;
    this.#since ??= performance.now();
    const isMissing = !hasLeave && performance.now() - this.#since >= patienceMilliseconds;
    this.#isOver = hasLeave || isMissing;
    if (isMissing)
      this.#onNotice(
        'the registry has not enrolled this gateway: it holds no records, and asks Redis for each request',
      );
  }
}
