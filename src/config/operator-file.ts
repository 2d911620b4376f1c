import { open } from 'node:fs/promises';
import path from 'node:path';
import { OperatorError } from './operator-error.js';

const chunkBytes = 64 * 1024;

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  ENOTDIR: 'a part of its path is not a directory',
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
};

/** Whether contents are a secret, which not every user of the machine may be able to read. */
export type IsSecret = (contents: Buffer) => boolean;

/** For a file that is a secret, whatever is in it. */
export const alwaysSecret: IsSecret = () => true;
/** For a file of keys, which are secret where one of them is private. */
export const privateKeys: IsSecret = (contents) => contents.includes('PRIVATE KEY');
const nothingSecret: IsSecret = () => false;

/**
 * Reads a file that the configuration names.
 * @param what the file's part, as the sentence begins: `The certificate`
 * @throws OperatorError with one sentence when it cannot be read, is larger than `maxBytes`, or is a secret of everybody's
 */
export async function readOperatorFile(
  file: string,
  what: string,
  maxBytes: number,
  isSecret: IsSecret = nothingSecret,
): Promise<Buffer> {
  let read: { readonly bytes: Buffer; readonly mode: number } | null;
  try {
    read = await readBounded(file, maxBytes);
  } catch (error) {
    const reason = fileProblemOf(error);
    if (!looksLikeSecret(file)) throw new OperatorError(`${what} ${file} cannot be read: ${reason}.`, { cause: error });
    // Without its cause, which names the file too.
    throw new OperatorError(
      `${what} cannot be read: ${reason}. Its name looks like a secret, so it is not repeated here: put a secret into a file, and give the name of that, with ./ before it if it is as long as this one.`,
    );
  }
  if (read === null) throw new OperatorError(`${what} ${file} is larger than ${maxBytes} bytes.`);
  const { bytes, mode } = read;
  if ((mode & othersAccess) !== 0 && isSecret(bytes)) {
    const octal = (mode & 0o777).toString(8).padStart(4, '0');
    throw new OperatorError(
      `${what} ${file} is open to every user of this machine (mode ${octal}): chmod 0640 ${file}`,
    );
  }
  return bytes;
}

/** Why a file cannot be read, in words: the system's own name the file, and the call that failed. */
export function fileProblemOf(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  return reasons[code] ?? (code || 'unknown reason');
}

/** Stands between a directory and a name in it that could be a secret, so that the name can still be told apart. */
const mark = '/./';

/** The path of a file whose name is relative to a directory. One that could be a secret stays recognisable. */
export function absolutePath(directory: string, file: string): string {
  return secretForm.test(file) ? `${directory}${mark}${file}` : path.resolve(directory, file);
}

function looksLikeSecret(file: string): boolean {
  const at = file.indexOf(mark);
  return secretForm.test(at === -1 ? file : file.slice(at + mark.length));
}

/** A secret that was given where its file is to be named: long, and not begun as a path is. Base64 has slashes too. */
const secretForm = /^[A-Za-z0-9_+-][A-Za-z0-9._~+/=-]{31,}$/;

/** To read or to write it. The group may: a pod's secrets belong to root, and to the group of the pod. */
const othersAccess = 0o006;

/** Not by the size that the file system tells: a pipe and a device have none, and would fill the memory. */
async function readBounded(file: string, maxBytes: number): Promise<{ bytes: Buffer; mode: number } | null> {
  const handle = await open(file, 'r');
  try {
    const stats = await handle.stat();
    const mode = stats.isFile() ? stats.mode : 0;
    const chunks: Buffer[] = [];
    for (let length = 0; length <= maxBytes;) {
      const { bytesRead, buffer } = await handle.read(Buffer.alloc(chunkBytes), 0, chunkBytes, null);
      if (bytesRead === 0) return { bytes: Buffer.concat(chunks), mode };
      chunks.push(buffer.subarray(0, bytesRead));
      length += bytesRead;
    }
    return null;
  } finally {
    await handle.close();
  }
}

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
  const contents = await readOperatorFile(file, what, maxSecretBytes, alwaysSecret);
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
