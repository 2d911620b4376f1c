import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { link, mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileProblemOf, privateKeys, readOperatorFile } from '../../config/operator-file.js';
import { OperatorError } from '../../config/operator-error.js';
import type { Config } from '../../config/schema.js';
import { InvalidNote, keyText, NoteSigner } from '../../evidence/signed-note.js';
import { CheckpointLog } from '../../telemetry/checkpoint-log.js';
import type { Logger } from '../../telemetry/logger.js';

const what = 'The instance key';
const maxPemBytes = 4_096;

/** Where the instance key is, and its name. */
type InstanceKeyOptions = Pick<NonNullable<Config['accessLog']['checkpoints']>, 'name' | 'keyFile'>;

/**
 * Opens what signs checkpoints of the access log; null where the configuration does not ask for that. The first start makes the key.
 * @throws OperatorError
 */
export async function openCheckpoints({ accessLog }: Config, log: Logger): Promise<CheckpointLog | null> {
  const { checkpoints } = accessLog;
  if (checkpoints === null) return null;
  const { file, keyFile, everySeconds } = checkpoints;
  const isNew = await makeInstanceKey(keyFile);
  const instance = await readInstanceKey(checkpoints);
  if (isNew)
    log.info(
      { keyFile, publicKey: keyText(instance.key) },
      'an instance key was made, which signs checkpoints of the access log: keep its public key where audits find it',
    );
  return new CheckpointLog({
    instance,
    file,
    everyMilliseconds: everySeconds * 1000,
    onProblem: (problem) => {
      if (problem === null) log.info({ file }, 'checkpoints of the access log are written again');
      else log.error({ problem }, 'checkpoints of the access log cannot be written; they are tried again');
    },
  });
}

/** Reads the key that signs for an instance. @throws OperatorError */
export async function readInstanceKey({ name, keyFile }: InstanceKeyOptions): Promise<NoteSigner> {
  const pem = await readOperatorFile(keyFile, what, maxPemBytes, privateKeys);
  try {
    return NoteSigner.ofPem(name, pem.toString('latin1'));
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(`${what} ${keyFile} cannot be used: ${error.message}.`, { cause: error });
  }
}

/**
 * Makes the key if it is missing. It is written to a temporary file and then linked, because workers that start together may all try.
 * @returns whether it was made
 */
async function makeInstanceKey(keyFile: string): Promise<boolean> {
  const unfinished = `${keyFile}.${randomUUID()}`;
  try {
    await mkdir(path.dirname(keyFile), { recursive: true, mode: 0o700 });
    const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' });
    await writeFile(unfinished, pem, { mode: 0o600, flag: 'wx' });
    await link(unfinished, keyFile);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // A directory that is read-only may hold a key that was put there: reading it says whether it does.
    if (code === 'EEXIST' || code === 'EROFS' || code === 'EACCES') return false;
    throw new OperatorError(`${what} ${keyFile} cannot be made: ${fileProblemOf(error)}.`, { cause: error });
  } finally {
    await rm(unfinished, { force: true }).catch(() => undefined);
  }
}
