import { growingFigures, sumFigures } from '../../telemetry/aggregate-figures.js';
import type { Figures } from '../../telemetry/aggregate-figures.js';
import { figureOfReadiness } from '../../telemetry/metrics.js';

/** What has been counted by workers that are slow to answer, or have ended, so that no sum falls behind what it was. */
export class WorkerFigures<Worker extends object> {
  readonly #last = new Map<Worker, Figures>();
  readonly #gone = new WeakSet<Worker>();
  #ended: Promise<Figures> = Promise.resolve([]);

  /**
   * The figures of all workers, those that have ended included.
   * @param answers null of a worker that does not tell them: then what it had counted when it last did
   */
  async all(answers: readonly (readonly [worker: Worker, answer: Figures | null])[]): Promise<Figures[]> {
    const ended = this.#ended;
    const running = answers.map(([worker, answer]) => this.#of(worker, answer));
    return [...running, await ended];
  }

  /** Takes in that a worker has ended. */
  ended(worker: Worker): void {
    const last = this.#last.get(worker);
    this.#last.delete(worker);
    this.#gone.add(worker);
    if (last !== undefined) this.#ended = this.#ended.then((before) => sumFigures([before, last]));
  }

  #of(worker: Worker, answer: Figures | null): Figures {
    if (this.#gone.has(worker)) return [figureOfReadiness(false)]; // what it told before it ended is among the others'
    if (answer === null) return [figureOfReadiness(false), ...(this.#last.get(worker) ?? [])];
    this.#last.set(worker, growingFigures(answer));
    return answer;
  }
}
