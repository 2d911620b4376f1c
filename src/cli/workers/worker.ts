import cluster from 'node:cluster';
import path from 'node:path';
import type { Config } from '../../config/schema.js';
import type { Health } from '../../edge/observe/management.js';
import type { RunningGateway } from '../../edge/start-gateway.js';

/** Name of the environment variable that contains the number of a worker process. */
export const workerNumberVariable = 'MERCHANT_GATEWAY_WORKER';

/** A worker's reply to a query from the primary process. */
export interface WorkerStatus {
  readonly health: Health;
  /** The metrics of the worker, as input of `aggregateMetrics`. */
  readonly figures: readonly object[];
}

/**
 * A message from a worker to the primary process. The first one contains the addresses on which the worker listens;
 * each later one is the reply to a query.
 */
export type WorkerMessage =
  { readonly started: RunningGateway['addresses'] } | { readonly question: number; readonly answer: WorkerStatus };

/** A query from the primary process to a worker. */
export interface StatusRequest {
  readonly question: number;
}

/** Returns the number of this worker, from 1; null if this process is not a worker. */
export function ownWorkerNumber(): number | null {
  const number = process.env[workerNumberVariable];
  return cluster.isWorker && number !== undefined ? Number(number) : null;
}

/**
 * Returns the configuration of a worker: with a log file of its own, and without the management listener, which the
 * primary process serves.
 */
export function configOfWorker(config: Config, number: number): Config {
  const { dir, name, ext } = path.parse(config.accessLog.destination);
  return {
    ...config,
    listen: { ...config.listen, management: null },
    accessLog: { ...config.accessLog, destination: path.join(dir, `${name}.${number}${ext}`) },
  };
}

/** Reports to the primary process that this worker accepts requests. Then replies to queries of the primary process. */
export function servePrimary(running: RunningGateway): void {
  const send = (message: WorkerMessage): void => {
    if (process.connected) process.send?.(message);
  };
  process.on('message', ({ question }: StatusRequest) => {
    void running.metricObjects().then((metricObjects) => {
      send({ question, answer: { health: running.health(), figures: metricObjects } });
    });
  });
  send({ started: running.addresses });
}

/**
 * Registers a listener that drains this worker, as on SIGTERM, once the primary process is gone. Without the listener,
 * Node would exit at once and drop the requests in flight.
 */
export function drainWithoutPrimary(): void {
  cluster.worker?.once('disconnect', () => {
    if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
    process.kill(process.pid, 'SIGTERM');
  });
}
