import path from 'node:path';
import { loadConfig } from '../../config/load.js';
import type { Config } from '../../config/schema.js';
import { readLogSecret } from '../compose/secrets.js';
import type { LogSecret } from '../../telemetry/chain.js';

/** Options that locate the secret of the access log. */
export interface SecretOptions {
  readonly secretFile?: readonly string[];
  readonly config?: string;
}

/**
 * Reads the secrets of the access log: from the configured file, if any, and from the files of `--secret-file`. After a
 * rotation, one log has lines that were hashed with the old secret and lines that were hashed with the new one.
 * A caller that has already loaded the configuration must pass it, because a file that is a pipe can be read only once.
 * @returns the configured secret, then the others in the order of their files; empty without a secret
 * @throws OperatorError, ConfigError
 */
export async function readLogSecrets(
  { secretFile = [], config: file }: SecretOptions,
  { accessLog }: Pick<Config, 'accessLog'> = loadConfig({ file }),
): Promise<LogSecret[]> {
  const configured = accessLog.secretFile;
  const others = secretFile.filter((name) => path.resolve(name) !== configured);
  const files = configured === null ? others : [configured, ...others];
  return Promise.all(files.map(readLogSecret));
}
