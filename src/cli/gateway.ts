import { Command, InvalidArgumentError } from 'commander';
import { ConfigError } from '../config/config-error.js';
import { configNotes, gatewayProblems } from '../config/config-notes.js';
import { loadConfig } from '../config/load.js';
import { fitToMemory, planMemory } from '../config/memory-plan.js';
import type { Config } from '../config/schema.js';
import { type RunningGateway, startGateway } from '../edge/start-gateway.js';
import { openPorts } from './compose/gateway-ports.js';
import { startLog, type PartLog, drainGateway, runServer, saveMilliseconds } from './run-server.js';
import { runPrimary, workersProblems } from './workers/primary.js';
import { servePrimary, configOfWorker, drainWithoutPrimary, ownWorkerNumber } from './workers/worker.js';

interface GatewayOptions {
  readonly config?: string;
  readonly workers: number;
}

const mostWorkers = 64;

/** Creates the command `gateway`, which handles the merchants' requests. */
export function gatewayCommand(): Command {
  return new Command('gateway')
    .description('run the gateway: TLS, authentication and proxying')
    .option('--config <file>', 'configuration file')
    .option(
      '--workers <number>',
      'number of processes that share the ports; each process has its own limits and access log',
      countIn,
      1,
    )
    .action(gateway);
}

async function gateway({ config: file, workers }: GatewayOptions): Promise<void> {
  const config = loadConfig({ file });
  const problems = workers === 1 ? gatewayProblems(config) : workersProblems(config);
  if (problems.length > 0) throw new ConfigError(problems, file);

  const { log, build } = startLog('gateway', config);
  const fitted = fitToMemory(config, workers);
  const number = ownWorkerNumber();
  if (number !== null) {
    drainWithoutPrimary();
    try {
      const own = { log: log.child({ worker: number }), build };
      await runGateway(configOfWorker(fitted, number), own, number === 1, servePrimary);
    } catch (error) {
      process.channel?.unref(); // after a failed start, the IPC channel must not keep the process alive
      throw error;
    }
    return;
  }
  log.info(planMemory(config, workers), 'memory plan, in bytes per process');
  for (const { path, message } of configNotes('gateway', config, workers)) log.warn(`${path} ${message}`);
  if (workers > 1) {
    await runPrimary(config, log, workers);
  } else {
    await runGateway(fitted, { log, build }, true, ({ addresses }) => {
      log.info(addresses, 'the gateway accepts requests');
    });
  }
}

/** Runs a gateway in this process. */
async function runGateway(
  config: Config,
  { log, build }: PartLog,
  fetchesTorExits: boolean,
  onStarted: (running: RunningGateway) => void,
): Promise<void> {
  await runServer(config, log, async (closeLater, saveAnyhow) => {
    const ports = await openPorts(config, log, { fetchesTorExits });
    saveAnyhow(() => ports.accessLog.close(saveMilliseconds));
    const running = await startGateway(config, { ...ports, build }, (requests, failure) => {
      if (failure === null) log.info({ requests }, 'warmed up');
      else log.warn({ err: failure, requests }, 'warm-up failed; the first requests may be slow');
    });
    closeLater(() => drainGateway(running, ports.accessLog));
    // During the start, a listener in main.ts ignores SIGHUP, so that the signal does not end the process.
    process.on('SIGHUP', () => void running.reloadTls());
    onStarted(running);
  });
}

function countIn(text: string): number {
  const count = Number(text);
  if (/^\d{1,3}$/.test(text) && count >= 1 && count <= mostWorkers) return count;
  throw new InvalidArgumentError(`Expected a number from 1 to ${mostWorkers}.`);
}
