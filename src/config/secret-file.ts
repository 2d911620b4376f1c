import { OperatorError } from './operator-error.js';
import { readOperatorFile, secret as isSecret } from './operator-file.js';

const maxSecretBytes = 4096;
const minSecretBytes = 16;
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

/**
 * Reads a secret's file; a line end behind it is the editor's, not the secret's.
 * @param what the secret, as the sentence begins: `The pepper`
 * @throws OperatorError when it cannot be read, everybody can read it, it is too short, or has at an end what nobody sees
 */
export async function readSecretFile(file: string, what: string): Promise<Buffer> {
  return secretIn(file, what);
}

/**
 * Reads a file with one secret or, while it is replaced by another one, two, each in a line of its own.
 * @throws OperatorError as above; or when it has more lines, the same one twice, or one that is too short
 */
export async function readSecretLines(file: string, what: string, minBytes: number): Promise<readonly Buffer[]> {
  const lines = (await secretIn(file, what)).toString('latin1').split(/\r?\n/);
  if (lines.length > 2 || new Set(lines).size < lines.length)
    throw new OperatorError(`${what} ${file} has to have one line, or two that differ.`);
  const secrets = lines.map((line) => Buffer.from(line, 'latin1'));
  if (secrets.some((secret) => secret.length < minBytes))
    throw new OperatorError(`${what} ${file} has a line that is shorter than ${minBytes} bytes.`);
  return secrets;
}

async function secretIn(file: string, what: string): Promise<Buffer> {
  const contents = await readOperatorFile(file, what, maxSecretBytes, isSecret);
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
