import { gatewayProblems } from '../../config/config-notes.js';
import type { Problem } from '../../config/config-error.js';
import type { Config } from '../../config/schema.js';
import { listen } from '../../edge/server/listen.js';
import { createManagement } from '../../edge/observe/management.js';
import type { Logger } from '../../telemetry/logger.js';
import { openIdentity, openPublishedKeys } from '../compose/identity.js';
import { runServer } from '../run-server.js';
import { WorkerPool } from './worker-processes.js';

/** Returns the problems that keep a gateway from starting several worker processes. */
export function workersProblems(config: Config): Problem[] {
  const problems = gatewayProblems(config);
  if (config.accessLog.destination !== 'stdout') return problems;
  const message =
    'several worker processes cannot share standard output, because their lines would interleave; ' +
    'expected the path of a file (each worker adds its number to the file name)';
  return [...problems, { path: 'accessLog.destination', message }];
}

/**
 * Runs a gateway as several worker processes that share its ports. This primary process serves the management listener
 * for all of them.
 */
export async function runPrimary(config: Config, log: Logger, count: number): Promise<void> {
  await runServer(config, log, async (closeLater) => {
    const workers = new WorkerPool(count, log);
    const health = createManagement({
      health: () => workers.health(),
      metrics: workers,
      keys: (await openIdentity(config)) ?? (await openPublishedKeys(config)),
    });
    closeLater(() => health.close()); // closed last, so that health checks work during the drain
    const { management: at } = config.listen;
    const management = at && (await listen(health, 'management', at));
    closeLater(() => workers.stop());
    const addresses = await workers.start();
    for (const signal of ['SIGHUP', 'SIGUSR2'] as const) {
      process.on(signal, () => {
        workers.signal(signal);
      });
    }
    log.info({ ...addresses, management, workers: count }, 'the gateway accepts requests');
  });
}
