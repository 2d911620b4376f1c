import type { Config } from '../config/schema.js';
import { readCertificate } from '../http/tls/certificate.js';
import { readToken } from '../rest/bearer-token.js';
import { startServices, type OperatorsListener, type RunningServices } from '../services/start-services.js';
import type { Logger } from '../telemetry/logger.js';
import type { Build } from '../telemetry/process-metrics.js';
import { openAssertionVerifier } from './open-assertion-verifier.js';
import { systemClock, systemTimers } from './system-clock.js';

/** Starts the backing services as the configuration has them. @param mayCreate whether a database that is not there is made */
export async function startConfiguredServices(
  config: Config,
  logger: Logger,
  { mayCreate = true, build }: { readonly mayCreate?: boolean; readonly build?: Build } = {},
): Promise<RunningServices> {
  const { listen, database, bank, operators } = config.services;
  const { url: databaseUrl, ...pool } = database;
  const { delaySeconds, failingAccounts } = bank;
  return startServices({
    ...listen,
    ...{
      databaseUrl,
      pool,
      mayCreate,
      build,
      assertions: await openAssertionVerifier(config),
      hosts: new Set(Object.values(config.upstreams).map(({ url }) => new URL(url).hostname)),
      clock: systemClock,
      timers: systemTimers,
      logger,
    },
    bank: { delayMilliseconds: delaySeconds * 1000, failingAccounts },
    operators: await operatorsListener(operators),
  });
}

/**
 * Where operators are listened to. Null where there is no token: then nobody is let in, so nobody is listened to.
 * @throws OperatorError for a token or a certificate that cannot be used
 */
export async function operatorsListener({
  listen,
  tokenFile,
}: Config['services']['operators']): Promise<OperatorsListener | null> {
  if (tokenFile === null) return null;
  const token = await readToken(tokenFile, 'services.operators.tokenFile');
  const { host, port, certFile, keyFile } = listen;
  const isPlain = certFile === null || keyFile === null;
  return { host, port, token, tls: isPlain ? null : await readCertificate(certFile, keyFile) };
}
