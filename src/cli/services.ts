import { Command } from 'commander';
import { configNotes } from '../config/config-notes.js';
import { loadConfig } from '../config/load.js';
import type { RunningServices } from '../services/start-services.js';
import { onReloadSignals, runServer, startLog } from './run-server.js';

/** Creates the command `services`, which runs the backing services. */
export function servicesCommand(): Command {
  return new Command('services')
    .description('run the backing services: transactions, payouts, wallets, customers')
    .option('--config <file>', 'configuration file')
    .option('--create', 'create the database if it does not exist, for a new installation')
    .action(services);
}

async function services({ config: file, create }: { readonly config?: string; readonly create?: true }): Promise<void> {
  const config = loadConfig({ file });
  const { log, build } = startLog('services', config);
  for (const { path, message } of configNotes('services', config)) log.warn(`${path} ${message}`);
  // Load this module lazily, because most commands need no SQL.
  const { startConfiguredServices } = await import('./compose/services.js');
  let running: RunningServices | null = null;
  const { tokenFile, registryKeys, listen } = config.services.operators;
  const isOff = tokenFile === null && registryKeys.length === 0;
  onReloadSignals(log, isOff ? null : listen.certFile, () => running?.reloadCertificate());
  await runServer(config, log, async (closeLater) => {
    const services = await startConfiguredServices(config, log, { mayCreate: create === true, build });
    running = services;
    closeLater(() => services.close());
    const { url, operatorsUrl } = services;
    log.info(operatorsUrl === null ? { url } : { url, operatorsUrl }, 'the services accept requests');
    if (operatorsUrl === null)
      log.warn(
        "the operators' API is off, so wallets cannot be created or funded: set services.operators.registryKeys or services.operators.tokenFile",
      );
  });
}
