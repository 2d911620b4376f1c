import { gatewayProblems } from '../../config/config-notes.js';
import type { Problem } from '../../config/config-error.js';
import type { Config } from '../../config/schema.js';
import { listen } from '../../edge/server/listen.js';
import { createManagement } from '../../edge/observe/management.js';
import type { Logger } from '../../telemetry/logger.js';
import { openIdentity } from '../compose/identity.js';
import { runServer } from '../run-server.js';
import { WorkerProcesses } from './worker-processes.js';

/** What keeps a gateway of several processes from starting. */
export function workersProblems(config: Config): Problem[] {
  const problems = gatewayProblems(config);
  if (config.accessLog.destination !== 'stdout') return problems;
  const message =
    'several worker processes cannot share standard output, where they would tear lines: ' +
    'expected the path of a file, beside which each worker writes its own';
  return [...problems, { path: 'accessLog.destination', message }];
}

/** Runs a gateway as worker processes that share its ports, and answers for all of them on the management listener. */
export async function runPrimary(config: Config, log: Logger, count: number): Promise<void> {
  await runServer(config, log, async (closeLater) => {
    const workers = new WorkerProcesses(count, log);
    const health = createManagement({
      health: () => workers.health(),
      metrics: workers,
      identity: await openIdentity(config),
    });
    closeLater(() => health.close()); // last, so that it can be asked all the while
    const { management: at } = config.listen;
    const management = at && (await listen(health, 'management', at));
    closeLater(() => workers.stop());
    const addresses = await workers.start();
    for (const signal of ['SIGHUP', 'SIGUSR2'] as const) {
      process.on(signal, () => {
        workers.signal(signal);
      });
    }
    log.info({ ...addresses, management, workers: count }, 'the gateway takes requests');
  });
}
