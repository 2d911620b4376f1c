import { loadConfig } from '../../config/load.js';
import { readLogSecret } from '../compose/gateway-ports.js';
import type { LogSecret } from '../../telemetry/chain.js';

/** Where the log's secret is. */
export interface SecretOptions {
  readonly secretFile?: readonly string[];
  readonly config?: string;
}

/**
 * Reads the log's secrets: those of the files that are named, or else that of the configuration.
 * @returns in the order in which they were named; empty where there is none
 * @throws OperatorError, ConfigError
 */
export async function readLogSecrets({ secretFile = [], config }: SecretOptions): Promise<LogSecret[]> {
  const { accessLog } = loadConfig({ file: config });
  const files = secretFile.length > 0 || accessLog.secretFile === null ? secretFile : [accessLog.secretFile];
  return Promise.all(files.map(readLogSecret));
}
