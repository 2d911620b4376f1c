import { Seals } from '../adapters/redis/seal.js';
import { readSecretLines } from '../config/secret-file.js';

const minSecretBytes = 32;

/** Reads the secrets that records are sealed with; null: they are not sealed. */
export async function readRecordSeals(file: string | null): Promise<Seals> {
  return new Seals(file === null ? [] : await readSecretLines(file, 'The secret of records', minSecretBytes));
}
