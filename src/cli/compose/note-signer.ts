import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { link, mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { OperatorError } from '../../config/operator-error.js';
import { fileProblemOf, privateKeys, readOperatorFile } from '../../config/operator-file.js';
import { InvalidNote, NoteSigner } from '../../evidence/signed-note.js';

const maxPemBytes = 4_096;

/** How error messages name the key with which a gateway instance signs. */
export const instanceKeySubject = 'The instance key';

/** Name and key file of a signer of notes, which are signed texts such as checkpoints. */
export interface SignerOptions {
  readonly name: string;
  readonly keyFile: string;
}

/**
 * Reads a private key that signs notes, such as checkpoints.
 * @param what how error messages name the key
 * @throws OperatorError
 */
export async function readSigner({ name, keyFile }: SignerOptions, what: string): Promise<NoteSigner> {
  const pem = await readOperatorFile(keyFile, what, maxPemBytes, privateKeys);
  try {
    return NoteSigner.ofPem(name, pem.toString('latin1'));
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(`${what} ${keyFile} cannot be used: ${error.message}.`, { cause: error });
  }
}

/**
 * Reads the private key with which a gateway instance signs.
 * @throws OperatorError
 */
export function readInstanceKey(key: SignerOptions): Promise<NoteSigner> {
  return readSigner(key, instanceKeySubject);
}

/**
 * Reads a private key that signs notes, and creates it first if it is missing. `isNew` is true if this process created
 * it.
 * @throws OperatorError
 */
export async function ensureSigner(
  options: SignerOptions,
  what: string,
): Promise<{ readonly signer: NoteSigner; readonly isNew: boolean }> {
  const isNew = await makeKey(options.keyFile, what);
  return { signer: await readSigner(options, what), isNew };
}

/**
 * Creates a key file if it is missing. Several processes can start at the same time, but only one may create the key.
 * So each process writes a temporary file and hard-links it to the final name. Only the first link succeeds.
 * @returns whether this process created the key
 * @throws OperatorError if the file cannot be created
 */
async function makeKey(keyFile: string, what: string): Promise<boolean> {
  // Write nothing if the key exists. Otherwise, a full disk would prevent a start although the key is readable.
  if (existsSync(keyFile)) return false;
  const unfinished = `${keyFile}.${randomUUID()}`;
  try {
    await mkdir(path.dirname(keyFile), { recursive: true, mode: 0o700 });
    const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' });
    await writeFile(unfinished, pem, { mode: 0o600, flag: 'wx' });
    await link(unfinished, keyFile);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // EEXIST: another process has created the key. EROFS, EACCES: the directory is not writable, or its files are not
    // visible. `readSigner` throws next if the key cannot be read.
    if (code === 'EEXIST' || code === 'EROFS' || code === 'EACCES') return false;
    throw new OperatorError(`${what} ${keyFile} cannot be created: ${fileProblemOf(error)}.`, { cause: error });
  } finally {
    await rm(unfinished, { force: true }).catch(() => undefined);
  }
}
