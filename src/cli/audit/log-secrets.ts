import { loadConfig } from '../../config/load.js';
import { readLogSecret } from '../compose/secrets.js';
import type { LogSecret } from '../../telemetry/chain.js';

/** Options that locate the secret of the access log. */
export interface SecretOptions {
  readonly secretFile?: readonly string[];
  readonly config?: string;
}

/**
 * Reads the secrets of the access log from the named files, or from the configured file if no file is named.
 * @returns the secrets in the order of the files; empty without a secret
 * @throws OperatorError, ConfigError
 */
export async function readLogSecrets({ secretFile = [], config }: SecretOptions): Promise<LogSecret[]> {
  const { accessLog } = loadConfig({ file: config });
  const files = secretFile.length > 0 || accessLog.secretFile === null ? secretFile : [accessLog.secretFile];
  return Promise.all(files.map(readLogSecret));
}
