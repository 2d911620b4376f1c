/** Who is told of what goes wrong, and of its end. */
export interface ProblemEvents {
  readonly onProblem: (problem: string, error: unknown) => void;
  readonly onRecovered: (what: string) => void;
}

/** Something that is tried again and again: told when it first fails and when it next goes well, however often it fails between. */
export class ToldOnce {
  readonly #events: ProblemEvents;
  readonly #problem: string;
  readonly #recovered: string;
  #isFailing = false;

  constructor(events: ProblemEvents, problem: string, recovered: string) {
    this.#events = events;
    this.#problem = problem;
    this.#recovered = recovered;
  }

  failed(error: unknown): void {
    if (!this.#isFailing) this.#events.onProblem(this.#problem, error);
    this.#isFailing = true;
  }

  wentWell(): void {
    if (this.#isFailing) this.#events.onRecovered(this.#recovered);
    this.#isFailing = false;
  }
}
