/** How long a new gateway waits for its first grant before it becomes ready without a grant. */
const grantTimeoutMilliseconds = 2_000;

/**
 * Waits for the gateway's first grant, which is the registry's permission to cache records. Without a grant, each
 * request reads from Redis, so a short wait is worthwhile.
 */
export class FirstGrant {
  readonly #onNotice: (notice: string) => void;
  #since: number | null = null;
  #isOver = false;

  /** @param onNotice called if the wait ends without a grant */
  constructor(onNotice: (notice: string) => void) {
    this.#onNotice = onNotice;
  }

  /** Why the gateway is not ready, while it waits for the grant; null if it does not wait. */
  get reason(): string | null {
    const waits = !this.#isOver && this.#since !== null && performance.now() - this.#since < grantTimeoutMilliseconds;
    return waits ? 'waiting for the registry to enrol this gateway (to let it cache records)' : null;
  }

  /**
   * Records a successful heartbeat.
   * @param hasLeave whether the registry has enrolled the gateway, that is, allows it to cache records
   */
  beat(hasLeave: boolean): void {
    if (this.#isOver) return;
    this.#since ??= performance.now();
    const isMissing = !hasLeave && performance.now() - this.#since >= grantTimeoutMilliseconds;
    this.#isOver = hasLeave || isMissing;
    if (isMissing)
      this.#onNotice(
        'the registry has not enrolled this gateway, so the gateway caches no records and reads Redis for each request: check that the registry runs',
      );
  }
}
