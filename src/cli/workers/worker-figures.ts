import { growingFigures, sumFigures } from '../../telemetry/aggregate-figures.js';
import type { Figures } from '../../telemetry/aggregate-figures.js';
import { figureOfReadiness } from '../../telemetry/metrics.js';

/** What has been counted by workers that are slow to answer, or have ended, so that no sum falls behind what it was. */
export class WorkerFigures<Worker extends object> {
  readonly #last = new Map<Worker, Figures>();
  #ended: Promise<Figures> = Promise.resolve([]);

  /**
   * The figures of a worker that runs.
   * @param answer null where it does not tell them: then what it had counted when it last did
   */
  of(worker: Worker, answer: Figures | null): Figures {
    if (answer === null) return [figureOfReadiness(false), ...(this.#last.get(worker) ?? [])];
    this.#last.set(worker, growingFigures(answer));
    return answer;
  }

  /** Takes in that a worker has ended. */
  ended(worker: Worker): void {
    const last = this.#last.get(worker);
    this.#last.delete(worker);
    if (last !== undefined) this.#ended = this.#ended.then((before) => sumFigures([before, last]));
  }

  /** What all workers that have ended had counted when they were last asked. */
  ofEnded(): Promise<Figures> {
    return this.#ended;
  }
}
