import { Command } from 'commander';
import { ConfigError } from '../config/config-error.js';
import { gatewayProblems } from '../config/gateway-problems.js';
import { loadConfig } from '../config/load.js';
import { startGateway } from '../http/start-gateway.js';
import { createLogger } from '../telemetry/logger.js';
import { openPorts } from './open-ports.js';
import { runServer, saveMilliseconds } from './run-server.js';

/** `gateway`: the data plane alone. */
export function gatewayCommand(): Command {
  return new Command('gateway')
    .description('take requests: TLS, authentication and proxying')
    .option('--config <file>', 'configuration file')
    .action(gateway);
}

async function gateway({ config: file }: { readonly config?: string }): Promise<void> {
  const config = loadConfig({ file });
  const problems = gatewayProblems(config);
  if (problems.length > 0) throw new ConfigError(problems, file);

  const log = createLogger(config.log.level);
  await runServer(config, log, async (closeLater, saveAnyhow) => {
    const ports = await openPorts(config, log);
    saveAnyhow(() => ports.accessLog.close(saveMilliseconds));
    const running = await startGateway(config, ports, (requests, failure) => {
      if (failure === null) log.info({ requests }, 'warmed up');
      else log.warn({ err: failure, requests }, 'the warm-up failed; the first requests may be slow');
    });
    closeLater(() => running.drain());
    // The conventional signal for "look at your files again"; without a listener it would end the process.
    process.on('SIGHUP', () => void running.reloadTls());
    log.info(running.addresses, 'the gateway takes requests');
  });
}
