import { open } from 'node:fs/promises';
import { OperatorError } from './operator-error.js';

const chunkBytes = 64 * 1024;

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  ENOTDIR: 'a part of its path is not a directory',
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
};

/**
 * Reads a file that the configuration names.
 * @param what the file's part, as the sentence begins: `The certificate`
 * @throws OperatorError with one sentence when it cannot be read or is larger than `maxBytes`
 */
export async function readOperatorFile(file: string, what: string, maxBytes: number): Promise<Buffer> {
  let bytes: Buffer | null;
  try {
    bytes = await readBounded(file, maxBytes);
  } catch (error) {
    const reason = fileProblemOf(error);
    if (!secretForm.test(file)) throw new OperatorError(`${what} ${file} cannot be read: ${reason}.`, { cause: error });
    // Without its cause, which names the file too.
    throw new OperatorError(
      `${what} cannot be read: ${reason}. Its name looks like a secret, so it is not repeated here: put a secret into a file, and give the name of that, with ./ before it if it is as long as this one.`,
    );
  }
  if (bytes === null) throw new OperatorError(`${what} ${file} is larger than ${maxBytes} bytes.`);
  return bytes;
}

/** Why a file cannot be read, in words: the system's own name the file, and the call that failed. */
export function fileProblemOf(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  return reasons[code] ?? (code || 'unknown reason');
}

/** A secret that was given where its file is to be named: long, and not begun as a path is. Base64 has slashes too. */
const secretForm = /^[A-Za-z0-9_+-][A-Za-z0-9._~+/=-]{31,}$/;

/** Not by the size that the file system tells: a pipe and a device have none, and would fill the memory. */
async function readBounded(file: string, maxBytes: number): Promise<Buffer | null> {
  const handle = await open(file, 'r');
  try {
    const chunks: Buffer[] = [];
    for (let length = 0; length <= maxBytes;) {
      const { bytesRead, buffer } = await handle.read(Buffer.alloc(chunkBytes), 0, chunkBytes, null);
      if (bytesRead === 0) return Buffer.concat(chunks);
      chunks.push(buffer.subarray(0, bytesRead));
      length += bytesRead;
    }
    return null;
  } finally {
    await handle.close();
  }
}
