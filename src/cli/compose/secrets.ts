import type { Config } from '../../config/schema.js';
import type { ServicesTokenKey } from '../../registry/services-tokens/services-tokens.js';
import { Seals } from '../../adapters/redis/seal.js';
import { readSecretFile, readSecretLines } from '../../config/operator-file.js';
import { type Pepper, pepperOf } from '../../gateway/api-key.js';
import { type LogSecret, logSecretOf } from '../../telemetry/chain.js';

/**
 * Reads the pepper, the secret with which API keys are hashed; null without a file.
 * @throws OperatorError
 */
export async function readPepper(file: string | null): Promise<Pepper | null> {
  return file === null ? null : pepperOf(await readSecretFile(file, 'The pepper'));
}

const minSecretBytes = 32;

/**
 * Reads the secrets with which records in Redis are authenticated ("sealed").
 * @param file null: records are not sealed
 * @throws OperatorError
 */
export async function readRecordSeals(file: string | null): Promise<Seals> {
  return new Seals(file === null ? [] : await readSecretLines(file, 'The secret of records', minSecretBytes));
}

/**
 * Reads the secret of the access log; null without a file.
 * @throws OperatorError
 */
export async function readLogSecret(file: string | null): Promise<LogSecret> {
  return file === null ? null : logSecretOf(await readSecretFile(file, 'The secret of the access log'));
}

/**
 * Reads the key that signs services tokens. Administrators use the operators' API with these tokens. Returns null
 * without `registry.servicesToken`.
 * @throws OperatorError
 */
export async function openServicesTokenKey(
  option: Config['registry']['servicesToken'],
): Promise<ServicesTokenKey | null> {
  if (option === null) return null;
  // Load this module lazily: it loads jose, which registries without services tokens do not need.
  const { readServicesTokenKey } = await import('../../adapters/identity/signing-keys.js');
  return readServicesTokenKey(option.keyFile);
}
