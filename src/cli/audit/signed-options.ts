import { Option } from 'commander';
import { readLogLines } from '../../audit/log-lines.js';
import { type PinnedKey, SignedRuns } from '../../audit/signed-runs.js';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import { InvalidNote, parseKey } from '../../evidence/signed-note.js';
import { collect } from '../admin/arguments.js';
import type { CommandIo } from '../command-io.js';
import { momentOf } from './log-options.js';

const what = 'The file of public keys';
const betweenProgress = 20_000;
const maxKeyFileBytes = 64 * 1024;
const lineForm = /^(\S+)(?:\s+from\s+(\S+))?(?:\s+to\s+(\S+))?$/;

/** `--public-key`, as `audit verify`, `prove` and `check-proof` take it. */
export function publicKeyOption(): Option {
  return new Option(
    '--public-key <file>',
    'public keys of instances, one a line as audit public-key prints them, each with from TIME, to TIME or both behind it',
  ).argParser(collect);
}

/** `--checkpoints`, as `audit verify` and `prove` take it. */
export function checkpointsOption(): Option {
  return new Option(
    '--checkpoints <file>',
    'signed checkpoints (accessLog.checkpoints.file); .gz is unpacked',
  ).argParser(collect);
}

/**
 * Reads public keys and the time for which each counts.
 * @throws OperatorError
 */
export async function readPublicKeys(files: readonly string[]): Promise<PinnedKey[]> {
  const keys: PinnedKey[] = [];
  for (const file of files) {
    const lines = (await readOperatorFile(file, what, maxKeyFileBytes)).toString('utf8').split('\n');
    for (const [index, line] of lines.entries()) {
      const text = line.replace(/(?:^|\s)#.*$/, '').trim();
      if (text !== '') keys.push(pinnedKeyIn(text, `${what} ${file}, line ${index + 1}`));
    }
  }
  if (keys.length === 0) throw new OperatorError(`${what} has no key: audit public-key prints one.`);
  return keys;
}

function pinnedKeyIn(text: string, where: string): PinnedKey {
  const [, key = '', from, to] = lineForm.exec(text) ?? [];
  try {
    return { key: parseKey(key), from: timeIn(from, -Infinity, where), to: timeIn(to, Infinity, where) };
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
    throw new OperatorError(`${where}: ${error.message}.`, { cause: error });
  }
}

function timeIn(text: string | undefined, open: number, where: string): number {
  const time = text === undefined ? open : momentOf(text);
  if (time === null) throw new OperatorError(`${where}: expected a time such as 2026-11-20T10:00:00Z.`);
  return time;
}

/**
 * Reads all checkpoints.
 * @param since runs that were signed before it alone need not be there
 * @param err told of the progress: each checkpoint takes a quarter of a millisecond
 * @throws OperatorError
 */
export async function readSignedRuns(
  files: readonly string[],
  keys: readonly PinnedKey[],
  since: number,
  err: CommandIo['err'],
): Promise<SignedRuns> {
  const signed = new SignedRuns(keys, since);
  let count = 0;
  for await (const lines of readLogLines(files)) {
    for (const line of lines) {
      signed.take(line);
      count += 1;
      if (count % betweenProgress === 0) err(`${count} checkpoints read\n`);
    }
  }
  signed.link();
  return signed;
}
