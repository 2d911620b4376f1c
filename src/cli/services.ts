import { Command } from 'commander';
import { loadConfig } from '../config/load.js';
import { createLogger } from '../telemetry/logger.js';
import { runServer } from './run-server.js';

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
  // Here and not above: no other command needs SQL.
  const { startConfiguredServices } = await import('./start-configured-services.js');
  await runServer(config, log, async (closeLater) => {
    const running = await startConfiguredServices(config, log);
    closeLater(() => running.close());
    const { url, operatorsUrl } = running;
    log.info(operatorsUrl === null ? { url } : { url, operatorsUrl }, 'the services take requests');
    if (operatorsUrl === null)
      log.warn("there is no operators' API, so nobody can make a wallet or fund one: set services.operators.tokenFile");
  });
}
