import { OperatorError } from './operator-error.js';
import { readOperatorFile } from './operator-file.js';

const maxSecretBytes = 4096;
const minSecretBytes = 16;

/**
 * Reads a secret's file; a line end behind it is the editor's, not the secret's.
 * @param what the secret, as the sentence begins: `The pepper`
 * @throws OperatorError when it cannot be read or is too short
 */
export async function readSecretFile(file: string, what: string): Promise<Buffer> {
  const contents = await readOperatorFile(file, what, maxSecretBytes);
  const secret = Buffer.from(contents.toString('latin1').replace(/\r?\n$/, ''), 'latin1');
  if (secret.length < minSecretBytes)
    throw new OperatorError(`${what} ${file} is shorter than ${minSecretBytes} bytes.`);
  return secret;
}
