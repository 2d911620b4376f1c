import { readSecretFile } from '../config/secret-file.js';
import { pepperOf } from '../gateway/api-key.js';
import type { Pepper } from '../gateway/api-key.js';

/** Reads the pepper of look-up ids. */
export async function readPepper(file: string | null): Promise<Pepper | null> {
  return file === null ? null : pepperOf(await readSecretFile(file, 'The pepper'));
}
