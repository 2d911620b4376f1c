import { OperatorError } from '../../config/operator-error.js';
import type { Health } from '../../edge/observe/management.js';
import type { RunningGateway } from '../../edge/start-gateway.js';
import {
  aggregateMetrics,
  type MetricObjects,
  counterMetrics,
  type RenderedMetrics,
  combineMetrics,
} from '../../telemetry/aggregate-metrics.js';
import type { Logger } from '../../telemetry/logger.js';
import { readinessMetric } from '../../telemetry/metrics.js';
import { WorkerProcess } from './worker-process.js';
import type { WorkerStatus } from './worker.js';

/**
 * Keeps the last counters of workers that do not reply or have ended. Otherwise the sum over all workers would
 * decrease, and Prometheus would take that for a counter reset.
 */
export class WorkerMetrics<Worker extends object> {
  readonly #last = new Map<Worker, MetricObjects>();
  readonly #gone = new WeakSet<Worker>();
  #ended: Promise<MetricObjects> = Promise.resolve([]);

  /**
   * Returns the metrics of all workers, including ended ones. If a worker did not reply, its last counters are used.
   * @param replies the metrics of each running worker; null for a worker that did not reply
   */
  async all(replies: readonly (readonly [worker: Worker, metrics: MetricObjects | null])[]): Promise<MetricObjects[]> {
    const ended = this.#ended;
    const running = replies.map(([worker, metrics]) => this.#of(worker, metrics));
    return [...running, await ended];
  }

  /** Adds the last counters of an ended worker to the sum of all ended workers. */
  ended(worker: Worker): void {
    const last = this.#last.get(worker);
    this.#last.delete(worker);
    this.#gone.add(worker);
    if (last !== undefined) this.#ended = this.#ended.then((before) => combineMetrics([before, last]));
  }

  #of(worker: Worker, metrics: MetricObjects | null): MetricObjects {
    if (this.#gone.has(worker)) return [readinessMetric(false)]; // its counters are in the sum of ended workers already
    if (metrics === null) return [readinessMetric(false), ...(this.#last.get(worker) ?? [])];
    this.#last.set(worker, counterMetrics(metrics));
    return metrics;
  }
}

/** Delay before a worker that ended during its start is replaced. The delay prevents a tight loop of restarts. */
const pauseMilliseconds = 1_000;

/** The worker processes of a gateway. Starts and stops all of them together, and replaces each worker that ends. */
export class WorkerPool {
  readonly #count: number;
  readonly #log: Logger;
  readonly #workers = new Map<number, WorkerProcess>();
  readonly #metrics = new WorkerMetrics<WorkerProcess>();
  #allStarted = false;
  #stopping = false;

  constructor(count: number, log: Logger) {
    this.#count = count;
    this.#log = log;
  }

  /**
   * Starts all workers.
   * @returns the addresses on which they listen
   * @throws OperatorError if a worker ends before it accepts requests
   */
  async start(): Promise<RunningGateway['addresses']> {
    const numbers = Array.from({ length: this.#count }, (_, index) => index + 1);
    const workers = numbers.map((number) => this.#run(number));
    const started = await Promise.all(workers.map((worker) => worker.started));
    const [addresses] = started;
    if (addresses === undefined || started.includes(null) || addresses === null) {
      const failed = workers[started.indexOf(null)];
      const problem = (await failed?.ended)?.problem;
      throw new OperatorError(
        problem === undefined
          ? 'A worker process ended before it accepted requests; see its messages above.'
          : `A worker process could not be created: ${problem}`,
      );
    }
    this.#allStarted = true;
    return addresses;
  }

  /** Forwards a signal to all started workers. */
  signal(signal: 'SIGHUP' | 'SIGUSR2'): void {
    for (const worker of this.#workers.values()) worker.signal(signal);
  }

  /**
   * Combines the health of all workers: the problems of each worker, distinct warnings, and the details of the first
   * worker that replies.
   */
  async health(): Promise<Health> {
    const replies: readonly (readonly [number: number, status: WorkerStatus | null])[] = await Promise.all(
      [...this.#workers].map(async ([number, worker]) => [number, await worker.ask()] as const),
    );
    const problems = replies.flatMap(([number, status]) =>
      (status?.health.problems ?? ['does not respond']).map((problem) => `worker ${number}: ${problem}`),
    );
    const known = replies.flatMap(([, status]) => (status === null ? [] : [status.health]));
    return {
      problems,
      warnings: [...new Set(known.flatMap(({ warnings }) => warnings))],
      details: known[0]?.details ?? {},
    };
  }

  /** Returns the aggregated metrics of all workers. */
  async render(): Promise<RenderedMetrics> {
    const replies = await Promise.all(
      [...this.#workers.values()].map(async (worker) => [worker, (await worker.ask())?.figures ?? null] as const),
    );
    return aggregateMetrics(await this.#metrics.all(replies));
  }

  /**
   * Drains all workers (lets their requests in flight end) and waits until they have exited.
   * @throws Error if a started worker exited with a failure
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
    if (failed.length > 0) throw new Error(`worker processes that ended with a failure: ${failed.join(', ')}`);
  }

  #run(number: number): WorkerProcess {
    const worker = new WorkerProcess(number);
    this.#workers.set(number, worker);
    this.#log.info({ worker: number, pid: worker.pid }, 'worker process started');
    void worker.ended.then((end) => {
      this.#metrics.ended(worker);
      if (this.#stopping || !(this.#allStarted || worker.isStarted)) return; // a failed start makes `start` throw
      this.#log.error({ worker: number, ...end }, 'worker process ended unexpectedly; starting a replacement');
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
