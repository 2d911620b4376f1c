import { createHash, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { lstat, mkdir, open, rename, unlink } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { OperatorError } from '../../../config/operator-error.js';
import { creationProblemOf, fileProblemOf } from '../../../config/operator-file.js';
import Type, { Check, type Static } from '../../../typebox/typebox.js';
import { parseJson } from '../admin-response.js';
import type { Environment } from '../peer.js';

/** Schema of the token file that `merchant-gateway login` writes. */
const storedSession = Type.Object({
  registry: Type.String(),
  token: Type.String(),
  expiresAt: Type.String(),
  handle: Type.Union([Type.String(), Type.Null()]),
  /** When this machine received the session. The former release does not store it. */
  receivedAt: Type.Optional(Type.String()),
});

/** The content of the token file that `merchant-gateway login` writes. */
export type StoredSession = Static<typeof storedSession>;

const mostBytes = 8192;
const othersAccess = 0o077;

/**
 * Returns the default token file for a registry, below XDG_CONFIG_HOME or ~/.config. The file name contains a hash of
 * the registry's address.
 */
export function sessionFileOf(address: URL, env: Environment): string {
  const { XDG_CONFIG_HOME: configured = '' } = env;
  const home = path.isAbsolute(configured) ? configured : path.join(env.HOME ?? os.homedir(), '.config');
  const name = createHash('sha256').update(address.href).digest('hex').slice(0, 16);
  return path.join(home, 'merchant-gateway', `token-${name}`);
}

/**
 * Reads a token file; null if it does not exist.
 * @throws OperatorError if the file is unreadable, a symbolic link, owned by or accessible to others, or not a token
 *   file
 */
export async function readSession(file: string): Promise<StoredSession | null> {
  let handle;
  try {
    handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return null;
    const reason = code === 'ELOOP' ? 'it is a symbolic link; replace it with a regular file' : fileProblemOf(error);
    throw new OperatorError(`The token file ${file} cannot be read: ${reason}.`);
  }
  try {
    const stats = await handle.stat();
    const isOwn = process.getuid === undefined || stats.uid === process.getuid();
    if (!stats.isFile() || !isOwn || (stats.mode & othersAccess) !== 0) {
      throw new OperatorError(
        `The token file ${file} must be a regular file that belongs to you and has mode 0600: sign in again.`,
      );
    }
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(mostBytes), 0, mostBytes, 0);
    const session = parseJson(buffer.subarray(0, bytesRead).toString('utf8'));
    if (!Check(storedSession, session)) {
      throw new OperatorError(`${file} is not a token file that "merchant-gateway login" wrote: sign in again.`);
    }
    return session;
  } finally {
    await handle.close();
  }
}

/**
 * Whether `merchant-gateway login` wrote the file. Such a file contains JSON, so it begins with `{`. Other token files
 * contain only the token. False if the file cannot be read.
 */
export async function isSessionFile(file: string): Promise<boolean> {
  const handle = await open(file, 'r').catch(() => null);
  if (handle === null) return false;
  try {
    const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, 0);
    return buffer.toString('latin1') === '{';
  } catch {
    return false;
  } finally {
    await handle.close();
  }
}

/** Writes a token file with mode 0600, completely or not at all. @throws OperatorError if it cannot be written */
export async function writeSession(file: string, session: StoredSession): Promise<void> {
  const temporary = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    const existing = await lstat(file).catch(() => null);
    if (existing !== null && !existing.isFile())
      throw new OperatorError(`${file} is not a regular file: give another file with --token-file.`);
    // The flag `wx` fails if a file or link with this name exists. So no other process has opened the file before.
    const handle = await open(temporary, 'wx', 0o600);
    try {
      await handle.writeFile(`${JSON.stringify(session)}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, file);
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    if (error instanceof OperatorError) throw error;
    // `mkdir` reports EEXIST if the path of the directory names a file.
    const isFile = (error as NodeJS.ErrnoException).code === 'EEXIST';
    const problem = isFile ? `${path.dirname(file)} is not a directory` : creationProblemOf(error);
    throw new OperatorError(`The token file ${file} cannot be written: ${problem}.`);
  }
}

/** Deletes a token file, if it exists. */
export async function deleteSession(file: string): Promise<void> {
  await unlink(file).catch(() => undefined);
}
