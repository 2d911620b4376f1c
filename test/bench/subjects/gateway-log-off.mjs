// The gateway as `merchant-gateway gateway` starts it, but without the access log, which the product cannot disable.
import { loadConfig } from '../../../dist/config/load.js';
import { openPorts } from '../../../dist/cli/compose/gateway-ports.js';
import { startGateway } from '../../../dist/edge/start-gateway.js';
import { createLogger } from '../../../dist/telemetry/logger.js';

const config = loadConfig({ file: process.argv[2] });
const log = createLogger(config.log.level);
const none = {
  write() {},
  problem: () => null,
  lost: () => 0,
  heldBytes: () => 0,
  close: async () => undefined,
};
const running = await startGateway(config, { ...(await openPorts(config, log)), accessLog: none });
log.info(running.addresses, 'the gateway accepts requests');
