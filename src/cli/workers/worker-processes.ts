import { OperatorError } from '../../config/operator-error.js';
import type { Health } from '../../edge/observe/management.js';
import type { RunningGateway } from '../../edge/start-gateway.js';
import {
  aggregateFigures,
  type Figures,
  growingFigures,
  type RenderedMetrics,
  sumFigures,
} from '../../telemetry/aggregate-figures.js';
import type { Logger } from '../../telemetry/logger.js';
import { figureOfReadiness } from '../../telemetry/metrics.js';
import { WorkerProcess } from './worker-process.js';
import type { WorkerAnswer } from './worker.js';

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

/** A worker that cannot start is tried again so much later, and not in a tight loop. */
const pauseMilliseconds = 1_000;

/** The worker processes of a gateway: started together, each replaced when it ends, and stopped together. */
export class WorkerProcesses {
  readonly #count: number;
  readonly #log: Logger;
  readonly #workers = new Map<number, WorkerProcess>();
  readonly #figures = new WorkerFigures<WorkerProcess>();
  #allStarted = false;
  #stopping = false;

  constructor(count: number, log: Logger) {
    this.#count = count;
    this.#log = log;
  }

  /**
   * Starts all of them.
   * @returns where they listen
   * @throws OperatorError where one ends before it takes requests
   */
  async start(): Promise<RunningGateway['addresses']> {
    const numbers = Array.from({ length: this.#count }, (_, index) => index + 1);
    const started = await Promise.all(numbers.map((number) => this.#run(number).started));
    const [addresses] = started;
    if (addresses === undefined || started.includes(null) || addresses === null) {
      throw new OperatorError('A worker process ended before it took requests; what it said stands above.');
    }
    this.#allStarted = true;
    return addresses;
  }

  /** Passes a signal on to all that take requests. */
  signal(signal: 'SIGHUP' | 'SIGUSR2'): void {
    for (const worker of this.#workers.values()) worker.signal(signal);
  }

  /** Whether all of them are ready, and what operators should know of that. */
  async health(): Promise<Health> {
    const answers: readonly (readonly [number: number, answer: WorkerAnswer | null])[] = await Promise.all(
      [...this.#workers].map(async ([number, worker]) => [number, await worker.ask()] as const),
    );
    const problems = answers.flatMap(([number, answer]) =>
      (answer?.health.problems ?? ['does not answer']).map((problem) => `worker ${number}: ${problem}`),
    );
    const known = answers.flatMap(([, answer]) => (answer === null ? [] : [answer.health]));
    return {
      problems,
      warnings: [...new Set(known.flatMap(({ warnings }) => warnings))],
      details: known[0]?.details ?? {},
    };
  }

  /** The metrics of all of them as one. */
  async render(): Promise<RenderedMetrics> {
    const answers = await Promise.all(
      [...this.#workers.values()].map(async (worker) => [worker, (await worker.ask())?.figures ?? null] as const),
    );
    return aggregateFigures(await this.#figures.all(answers));
  }

  /**
   * Has all of them drain, and waits until they have ended.
   * @throws Error where one that took requests ended with a failure
   */
  async stop(): Promise<void> {
    this.#stopping = true;
    const failed: number[] = [];
    await Promise.all(
      [...this.#workers].map(async ([number, worker]) => {
        worker.signal('SIGTERM');
        const { code } = await worker.ended;
        if (worker.isStarted && code !== 0) failed.push(number);
      }),
    );
    if (failed.length > 0) throw new Error(`a worker process ended with a failure: ${failed.join()}`);
  }

  #run(number: number): WorkerProcess {
    const worker = new WorkerProcess(number);
    this.#workers.set(number, worker);
    this.#log.info({ worker: number, pid: worker.pid }, 'a worker process begins');
    void worker.ended.then((end) => {
      this.#figures.ended(worker);
      if (this.#stopping || !(this.#allStarted || worker.isStarted)) return; // the start fails
      this.#log.error({ worker: number, ...end }, 'a worker process ended, and is replaced');
      setTimeout(
        () => {
          if (!this.#stopping) this.#run(number);
        },
        worker.isStarted ? 0 : pauseMilliseconds,
      );
    });
    return worker;
  }
}
