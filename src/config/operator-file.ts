import { open } from 'node:fs/promises';
import path from 'node:path';
import { OperatorError } from './operator-error.js';

const chunkBytes = 64 * 1024;

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  ENOTDIR: 'a part of its path is not a directory',
  EACCES: 'permission denied',
  EEXIST: 'it exists already; give another name',
  EISDIR: 'it is a directory',
  ENOSPC: 'no space is left on the device',
  EROFS: 'the file system is read-only',
};

/** Whether a file's contents are secret. Other users must not be able to read or write a secret file. */
export type IsSecret = (contents: Buffer) => boolean;

/** The `IsSecret` of files that always contain a secret. */
export const alwaysSecret: IsSecret = () => true;
/** The `IsSecret` of key files: their contents are secret if they include a private key. */
export const privateKeys: IsSecret = (contents) => contents.includes('PRIVATE KEY');
const nothingSecret: IsSecret = () => false;

/**
 * Reads a file that the configuration names.
 * @param what subject of error messages, such as `The certificate`
 * @throws OperatorError if the file is unreadable or too large, or is a secret that other users can read or write
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
    if (!mayBeSecret(file)) throw new OperatorError(`${what} ${file} cannot be read: ${reason}.`, { cause: error });
    // Omit `cause`: the system error contains the file name, which could be a secret.
    throw new OperatorError(
      `${what} cannot be read: ${reason}. The configured file name looks like a secret, so it is not shown. Write ` +
        'the secret to a file and configure the path of that file. If the configured value is a file name, begin it with ./ instead.',
    );
  }
  if (read === null) throw new OperatorError(`${what} ${file} is larger than ${maxBytes} bytes.`);
  const { bytes, mode } = read;
  if ((mode & othersAccess) !== 0 && isSecret(bytes)) {
    const octal = (mode & 0o777).toString(8).padStart(4, '0');
    throw new OperatorError(
      `${what} ${file} is accessible to every user of this machine (mode ${octal}). To restrict the access, run: chmod 0640 ${file}`,
    );
  }
  return bytes;
}

/**
 * Describes why a file cannot be read or written. Omits the system's own message: that message contains the file name,
 * which could be a secret.
 */
export function fileProblemOf(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  return reasons[code] ?? (code || 'unknown reason');
}

/** Describes why a file cannot be created, or cannot be replaced by a new one. */
export function creationProblemOf(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOENT' ? 'the directory does not exist' : fileProblemOf(error);
}

/**
 * By mistake, an operator may configure a secret instead of the path of its file. If a file name could be a secret,
 * `absolutePath` puts this mark before it, as in `/etc/gateway/./NAME`. `mayBeSecret` checks the text after the mark.
 */
const nameMark = '/./';

/**
 * Makes a file name absolute. A name that could be a secret is appended unchanged after `nameMark`, because
 * `mayBeSecret` would not recognise it in a normalised path.
 */
export function absolutePath(directory: string, file: string): string {
  return secretPattern.test(file) ? `${directory}${nameMark}${file}` : path.resolve(directory, file);
}

function mayBeSecret(file: string): boolean {
  const at = file.indexOf(nameMark);
  return secretPattern.test(at === -1 ? file : file.slice(at + nameMark.length));
}

/**
 * Matches a secret that was configured in place of a file path: a long text that does not start like a path. It can
 * contain slashes, as Base64 does.
 */
const secretPattern = /^[A-Za-z0-9_+-][A-Za-z0-9._~+/=-]{31,}$/;

/**
 * Permission bits for reading and writing by other users. Group access is allowed, because the secrets of a Kubernetes
 * pod belong to root and the group of the pod.
 */
const othersAccess = 0o006;

/**
 * Reads a file; null if the file is larger than `maxBytes`. Counts the bytes while reading, because a pipe or device
 * reports no size and could exhaust the memory. The returned `mode` is 0 for anything but a regular file.
 */
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
 * Reads a file that contains a secret. Removes one trailing line end, which editors add.
 * @param what subject of error messages, such as `The pepper`
 * @throws OperatorError if the file is unreadable, world-accessible or too short, starts with a byte order mark or ends
 *   with several line ends
 */
export async function readSecretFile(file: string, what: string): Promise<Buffer> {
  const contents = await readOperatorFile(file, what, maxSecretBytes, alwaysSecret);
  const secret = Buffer.from(contents.toString('latin1').replace(/\r?\n$/, ''), 'latin1');
  // Editors do not show a byte order mark or trailing line ends. As part of the secret, these bytes would make it
  // differ from the visible text.
  if (secret.subarray(0, 3).equals(byteOrderMark))
    throw new OperatorError(`${what} ${file} begins with a byte order mark: save it without this mark.`);
  if (secret.at(-1) === 0x0a)
    throw new OperatorError(`${what} ${file} has several line breaks at its end; keep at most one.`);
  if (secret.length < minSecretBytes)
    throw new OperatorError(`${what} ${file} is shorter than ${minSecretBytes} bytes.`);
  return secret;
}

/**
 * Reads a file that contains a bearer token.
 * @throws OperatorError like `readSecretFile`, or if the token is not valid in a header; the message omits the token
 */
export async function readToken(file: string, what: string): Promise<string> {
  const token = (await readSecretFile(file, what)).toString('latin1');
  if (/^[!-~]+$/.test(token)) return token;
  throw new OperatorError(
    `${what} ${file} is not a valid bearer token: use only printable ASCII characters, without spaces.`,
  );
}

/**
 * Reads a file with one secret per line: one line, or two lines during a rotation.
 * @throws OperatorError like `readSecretFile`, or if there are more than two lines, two equal lines, or a line that is
 *   too short
 */
export async function readSecretLines(file: string, what: string, minBytes: number): Promise<readonly Buffer[]> {
  const lines = (await readSecretFile(file, what)).toString('latin1').split(/\r?\n/);
  if (lines.length > 2)
    throw new OperatorError(
      `${what} ${file} has ${lines.length} lines. Write one secret; during a rotation, add a second secret in line 2.`,
    );
  if (new Set(lines).size < lines.length)
    throw new OperatorError(`${what} ${file} has the same secret in both lines: remove or replace one of them.`);
  const secrets = lines.map((line) => Buffer.from(line, 'latin1'));
  const short = secrets.findIndex((secret) => secret.length < minBytes);
  if (short !== -1)
    throw new OperatorError(
      `${what} ${file} is too short: line ${short + 1} has fewer than ${minBytes} bytes. Write a longer secret.`,
    );
  return secrets;
}
