import { OperatorError } from './operator-error.js';
import { readOperatorFile } from './operator-file.js';

const maxSecretBytes = 4096;
const minSecretBytes = 16;
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

/**
 * Reads a secret's file; a line end behind it is the editor's, not the secret's.
 * @param what the secret, as the sentence begins: `The pepper`
 * @throws OperatorError when it cannot be read is too short, or has at an end what nobody sees
 */
export async function readSecretFile(file: string, what: string): Promise<Buffer> {
  const contents = await readOperatorFile(file, what, maxSecretBytes);
  const secret = Buffer.from(contents.toString('latin1').replace(/\r?\n$/, ''), 'latin1');
  // Invisible in an editor, and part of the secret: what was made elsewhere of the same text would be another one.
  if (secret.subarray(0, 3).equals(byteOrderMark))
    throw new OperatorError(`${what} ${file} begins with a byte order mark: save it as plain text, without one.`);
  if (secret.at(-1) === 0x0a)
    throw new OperatorError(`${what} ${file} ends with several line ends: leave at most one.`);
  if (secret.length < minSecretBytes)
    throw new OperatorError(`${what} ${file} is shorter than ${minSecretBytes} bytes.`);
  return secret;
}
