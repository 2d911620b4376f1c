import { Command } from 'commander';
import { loadConfig } from '../config/load.js';
import { startServices } from '../services/start-services.js';
import { createLogger } from '../telemetry/logger.js';
import { openAssertionVerifier } from './identity-keys.js';
import { runServer } from './run-server.js';
import { systemClock } from './system-clock.js';

/** `services`: the backing services alone. */
export function servicesCommand(): Command {
  return new Command('services')
    .description('run the backing services: transactions, payouts, wallets, customers')
    .option('--config <file>', 'configuration file')
    .action(services);
}

async function services({ config: file }: { readonly config?: string }): Promise<void> {
  const config = loadConfig({ file });
  const log = createLogger(config.log.level);
  const { listen, database } = config.services;
  await runServer(config, log, async (closeLater) => {
    const assertions = await openAssertionVerifier(config);
    const options = { ...listen, databaseUrl: database.url, assertions, clock: systemClock, logger: log };
    const running = await startServices(options);
    closeLater(() => running.close());
    log.info({ url: running.url }, 'the services take requests');
  });
}
