import cluster from 'node:cluster';
import type { Worker } from 'node:cluster';
import type { RunningGateway } from '../../edge/start-gateway.js';
import { workerNumberVariable } from './worker.js';
import type { WorkerAnswer, WorkerMessage, WorkerQuestion } from './worker.js';

/** A worker that says nothing for so long takes no requests either. */
const answerMilliseconds = 2_000;

/** How a process ended: the status, or the signal. */
export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: string | null;
}

/** One worker process, as the primary sees it. */
export class WorkerProcess {
  /** Where it listens; null where it ended before. */
  readonly started: Promise<RunningGateway['addresses'] | null>;
  readonly ended: Promise<ProcessEnd>;
  readonly #worker: Worker;
  readonly #waiting = new Map<number, (answer: WorkerAnswer | null) => void>();
  #isStarted = false;
  #asked = 0;

  constructor(number: number) {
    this.#worker = cluster.fork({ [workerNumberVariable]: String(number) });
    this.ended = new Promise((resolve) => {
      this.#worker.once('exit', (code: number | null, signal: string | null) => {
        resolve({ code, signal });
      });
    });
    this.started = new Promise((resolve) => {
      void this.ended.then(() => {
        resolve(null);
      });
      this.#worker.on('message', (message: WorkerMessage) => {
        if ('started' in message) {
          this.#isStarted = true;
          resolve(message.started);
        } else this.#take(message.question, message.answer);
      });
    });
    // A message to a process that is just ending; its end is told by `exit`.
    this.#worker.on('error', () => undefined);
  }

  /** Whether it has ever taken requests. */
  get isStarted(): boolean {
    return this.#isStarted;
  }

  get pid(): number | undefined {
    return this.#worker.process.pid;
  }

  /** Asks how it is; null where it does not answer in time. */
  ask(): Promise<WorkerAnswer | null> {
    if (!this.#isStarted || !this.#worker.isConnected()) return Promise.resolve(null);
    const question = (this.#asked += 1);
    return new Promise((resolve) => {
      this.#waiting.set(question, resolve);
      setTimeout(() => {
        this.#take(question, null);
      }, answerMilliseconds).unref();
      this.#worker.send({ question } satisfies WorkerQuestion);
    });
  }

  /** Sends a signal, unless it has ended. One that comes before the process listens for it would end it. */
  signal(signal: 'SIGHUP' | 'SIGUSR2' | 'SIGTERM'): void {
    if (this.#isStarted || signal === 'SIGTERM') this.#worker.process.kill(signal);
  }

  #take(question: number, answer: WorkerAnswer | null): void {
    this.#waiting.get(question)?.(answer);
    this.#waiting.delete(question);
  }
}
