/** Callbacks for the beginning and the end of an outage of Redis. */
export interface OutageEvents {
  /** Called when Redis, or a part of it, has become unavailable. */
  readonly onLost: (reason: Error) => void;
  /** Called when Redis is available again. */
  readonly onFound: (lostForMilliseconds: number) => void;
}

/** Reduces the many failures of an outage to two events, its start and its end. */
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

  /** Records the current problem of Redis; null: no problem. */
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
