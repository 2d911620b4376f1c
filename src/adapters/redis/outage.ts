/** Told when Redis is lost and when it is found again, and of nothing in between. */
export interface OutageEvents {
  /** Redis, or a part of it, cannot be relied upon any more. */
  readonly onLost: (reason: Error) => void;
  /** It can again. */
  readonly onFound: (lostForMilliseconds: number) => void;
}

/** Makes two events of an outage, out of the many attempts that fail while it lasts. */
export class Outage {
  readonly #events: OutageEvents;
  #lostAt: number | null = null;

  constructor(events: OutageEvents) {
    this.#events = events;
  }

  readonly failed = (reason: Error): void => {
    if (this.#lostAt !== null) return;
    this.#lostAt = performance.now();
    this.#events.onLost(reason);
  };

  /** Takes in what is wrong; null: nothing is. */
  report(problem: string | null): void {
    if (problem === null) this.recovered();
    else this.failed(new Error(problem));
  }

  readonly recovered = (): void => {
    if (this.#lostAt === null) return;
    const lostFor = performance.now() - this.#lostAt;
    this.#lostAt = null;
    this.#events.onFound(Math.round(lostFor));
  };
}
