import cluster from 'node:cluster';
import path from 'node:path';
import type { Config } from '../../config/schema.js';
import type { Health } from '../../edge/observe/management.js';
import type { RunningGateway } from '../../edge/start-gateway.js';

/** By which a process knows that it is a worker, and which one. */
export const workerNumberVariable = 'MERCHANT_GATEWAY_WORKER';

/** What a worker tells of itself when it is asked. */
export interface WorkerAnswer {
  readonly health: Health;
  /** Its metrics, as they are aggregated. */
  readonly figures: readonly object[];
}

/** What a worker sends to the primary: where it listens, once, and an answer to each question. */
export type WorkerMessage =
  { readonly started: RunningGateway['addresses'] } | { readonly question: number; readonly answer: WorkerAnswer };

/** What the primary sends to a worker. */
export interface WorkerQuestion {
  readonly question: number;
}

/** The number of this worker, from 1; null in a process that is none. */
export function ownWorkerNumber(): number | null {
  const number = process.env[workerNumberVariable];
  return cluster.isWorker && number !== undefined ? Number(number) : null;
}

/** The configuration of a worker: the primary has the management listener, and each worker a log of its own. */
export function configOfWorker(config: Config, number: number): Config {
  const { dir, name, ext } = path.parse(config.accessLog.destination);
  return {
    ...config,
    listen: { ...config.listen, management: null },
    accessLog: { ...config.accessLog, destination: path.join(dir, `${name}.${number}${ext}`) },
  };
}

/** Tells the primary that this worker takes requests, and from then on whatever it asks. */
export function answerPrimary(running: RunningGateway): void {
  const send = (message: WorkerMessage): void => {
    if (process.connected) process.send?.(message);
  };
  process.on('message', ({ question }: WorkerQuestion) => {
    void running.figures().then((figures) => {
      send({ question, answer: { health: running.health(), figures } });
    });
  });
  send({ started: running.addresses });
}

/** Has a worker whose primary is gone end as on SIGTERM. Node would end it at once, with what it has not answered yet. */
export function drainWithoutPrimary(): void {
  cluster.worker?.once('disconnect', () => {
    if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
    process.kill(process.pid, 'SIGTERM');
  });
}
