import type { Config } from '../config/schema.js';
import { startServices, type RunningServices } from '../services/start-services.js';
import type { Logger } from '../telemetry/logger.js';
import { openAssertionVerifier } from './open-assertion-verifier.js';
import { systemClock, systemTimers } from './system-clock.js';

/** Starts the backing services as the configuration has them. */
export async function startConfiguredServices(config: Config, logger: Logger): Promise<RunningServices> {
  const { listen, database, bank } = config.services;
  const { url: databaseUrl, ...pool } = database;
  const { delaySeconds, failingAccounts } = bank;
  return startServices({
    ...listen,
    ...{
      databaseUrl,
      pool,
      assertions: await openAssertionVerifier(config),
      hosts: new Set(Object.values(config.upstreams).map(({ url }) => new URL(url).hostname)),
      clock: systemClock,
      timers: systemTimers,
      logger,
    },
    bank: { delayMilliseconds: delaySeconds * 1000, failingAccounts },
  });
}
