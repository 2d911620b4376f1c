import { Command } from 'commander';
import { loadConfig } from '../config/load.js';
import { beginLog, ignoreReloadSignals, runServer } from './run-server.js';

/** `services`: the backing services alone. */
export function servicesCommand(): Command {
  return new Command('services')
    .description('run the backing services: transactions, payouts, wallets, customers')
    .option('--config <file>', 'configuration file')
    .option('--create', 'make the database where there is none, for a new installation')
    .action(services);
}

async function services({ config: file, create }: { readonly config?: string; readonly create?: true }): Promise<void> {
  const config = loadConfig({ file });
  const { log, build } = beginLog('services', config);
  // Here and not above: no other command needs SQL.
  const { startConfiguredServices } = await import('./compose/services.js');
  ignoreReloadSignals(log);
  await runServer(config, log, async (closeLater) => {
    const running = await startConfiguredServices(config, log, { mayCreate: create === true, build });
    closeLater(() => running.close());
    const { url, operatorsUrl } = running;
    log.info(operatorsUrl === null ? { url } : { url, operatorsUrl }, 'the services take requests');
    if (operatorsUrl === null)
      log.warn("there is no operators' API, so nobody can make a wallet or fund one: set services.operators.tokenFile");
  });
}
