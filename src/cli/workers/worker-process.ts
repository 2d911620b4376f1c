import cluster from 'node:cluster';
import type { Worker } from 'node:cluster';
import type { RunningGateway } from '../../edge/start-gateway.js';
import { workerNumberVariable } from './worker.js';
import type { WorkerStatus, WorkerMessage, StatusRequest } from './worker.js';

/** A worker that does not reply within this time counts as not ready. */
const replyTimeoutMilliseconds = 2_000;

/** The exit code of a process, or the signal that ended it. */
export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: string | null;
  /** Why the process could not be created; absent if it was created. */
  readonly problem?: string;
}

/** A worker process, as the primary process sees it. */
export class WorkerProcess {
  /** The addresses on which the worker listens; null if it ended before it listened. */
  readonly started: Promise<RunningGateway['addresses'] | null>;
  readonly ended: Promise<ProcessEnd>;
  readonly #worker: Worker;
  readonly #waiting = new Map<number, (status: WorkerStatus | null) => void>();
  #isStarted = false;
  #asked = 0;

  constructor(number: number) {
    this.#worker = cluster.fork({ [workerNumberVariable]: String(number) });
    this.ended = new Promise((resolve) => {
      this.#worker.once('exit', (code: number | null, signal: string | null) => {
        resolve({ code, signal });
      });
      this.#worker.on('error', ({ message }) => {
        // If the process could not be created, for example because too many files are open, no `exit` event follows.
        // Any other error is about a message to an ending process, and the `exit` event follows.
        if (this.#worker.process.pid === undefined) resolve({ code: null, signal: null, problem: message });
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
  }

  /** True once the worker accepts requests. Before that, it does not reply to queries. */
  get isStarted(): boolean {
    return this.#isStarted;
  }

  get pid(): number | undefined {
    return this.#worker.process.pid;
  }

  /** Requests the health and metrics of the worker. Null if the worker has not started or does not reply in time. */
  ask(): Promise<WorkerStatus | null> {
    if (!this.#isStarted || !this.#worker.isConnected()) return Promise.resolve(null);
    const question = (this.#asked += 1);
    return new Promise((resolve) => {
      this.#waiting.set(question, resolve);
      setTimeout(() => {
        this.#take(question, null);
      }, replyTimeoutMilliseconds).unref();
      this.#worker.send({ question } satisfies StatusRequest);
    });
  }

  /**
   * Sends a signal to the worker. SIGHUP and SIGUSR2 are sent only to a started worker: they would end a process that
   * has not installed its listeners yet.
   */
  signal(signal: 'SIGHUP' | 'SIGUSR2' | 'SIGTERM'): void {
    if (this.#isStarted || signal === 'SIGTERM') this.#worker.process.kill(signal);
  }

  #take(question: number, status: WorkerStatus | null): void {
    this.#waiting.get(question)?.(status);
    this.#waiting.delete(question);
  }
}
