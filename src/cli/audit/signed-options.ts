import { Option } from 'commander';
import { type RawLine, readLogLines } from '../../audit/log-lines.js';
import { type PinnedKey, registryWord, SignedRuns } from '../../audit/signed-runs.js';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import type { Finding } from '../../audit/finding.js';
import { WitnessedList } from '../../audit/witnessed-list.js';
import { InvalidNote, type NoteKey, parseKey } from '../../evidence/signed-note.js';
import { collect } from '../admin/arguments.js';
import type { CommandIo } from '../command-io.js';
import { parseTime } from './log-options.js';
import { fetchRegistryCheckpoints, type RegistryOptions } from './registry-checkpoints.js';

const what = 'The file of public keys';
const betweenProgress = 20_000;
const maxKeyFileBytes = 64 * 1024;
const lineForm = /^(\S+)(?:\s+from\s+(\S+))?(?:\s+to\s+(\S+))?$/;

/** The option `--public-key` of `audit verify`, `prove` and `check-proof`. */
export function publicKeyOption(): Option {
  return new Option(
    '--public-key <file>',
    'file with public keys of instances as audit public-key prints them, one per line, optionally with from TIME or to TIME',
  ).argParser(collect);
}

/** The option `--witness-key` of `audit verify` and `check-proof`. */
export function witnessKeyOption(): Option {
  return new Option(
    '--witness-key <file>',
    'file with the public key for receipts of the registry, as checkpoints head prints it',
  );
}

/** The option `--checkpoints` of `audit verify` and `prove`. */
export function checkpointsOption(): Option {
  return new Option(
    '--checkpoints <file>',
    'file of signed checkpoints (accessLog.checkpoints.file, or .gz), or "registry" to query the registry (repeatable)',
  ).argParser(collect);
}

/**
 * Reads public keys and the time in which each is valid.
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
  if (keys.length === 0) throw new OperatorError(`${what} contains no key: add a key that audit public-key prints.`);
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
  const time = text === undefined ? open : parseTime(text);
  if (time === null) throw new OperatorError(`${where}: expected a time such as 2026-11-20T10:00:00Z.`);
  return time;
}

/** Options for the source of checkpoints and for the keys that verify them. */
export interface SignedOptions extends RegistryOptions {
  readonly checkpoints?: readonly string[];
  readonly publicKey?: readonly string[];
  readonly witnessKey?: string;
}

/** Checkpoints and the keys that verify them. */
export interface GivenCheckpoints {
  readonly keys: readonly PinnedKey[];
  /** The list of the witness whose receipts are checked; null: receipts are ignored. */
  readonly witnessed: WitnessedList | null;
  /** Notes about their source. */
  readonly notes: readonly string[];
  /** Findings about their source. */
  readonly findings: readonly Finding[];
  /** The checkpoints themselves, as lines of files. */
  lines(): AsyncIterable<readonly RawLine[]>;
}

/** Whether the options are complete: checkpoint files need public keys; the registry supplies its own. */
export function areUsable({ checkpoints, publicKey }: SignedOptions): boolean {
  if (checkpoints === undefined) return publicKey === undefined;
  return publicKey !== undefined || checkpoints.includes(registryWord);
}

/** Opens the checkpoints that the options select. @throws OperatorError */
export async function openGivenCheckpoints(options: SignedOptions, err: CommandIo['err']): Promise<GivenCheckpoints> {
  const { checkpoints = [], publicKey, witnessKey } = options;
  const files = checkpoints.filter((name) => name !== registryWord);
  const registry = files.length === checkpoints.length ? null : await fetchRegistryCheckpoints(options, err);
  const given = publicKey === undefined ? null : await readPublicKeys(publicKey);
  const pinned = witnessKey === undefined ? null : await readWitnessKey(witnessKey);
  const isOther = pinned !== null && registry !== null && !pinned.bytes.equals(registry.list.key.bytes);
  if (isOther)
    throw new OperatorError('The registry signs receipts with a different key than the one in --witness-key.');
  const place = { file: registryWord, line: 1 };
  const problem = registry?.problem ?? null;
  return {
    keys: given ?? registry?.keys ?? [],
    witnessed: registry?.list ?? (pinned && new WitnessedList(pinned, false)),
    notes: given === null ? (registry?.unconfirmed ?? []).map(unconfirmedNote) : [],
    findings: problem === null ? [] : [{ ...place, kind: 'rewritten', message: problem }],
    async *lines() {
      if (registry !== null) yield registry.lines;
      yield* readLogLines(files);
    },
  };
}

function unconfirmedNote(name: string): string {
  return `the key of ${name} is not confirmed: compare it with audit public-key on that gateway, then instance-keys confirm`;
}

/** Reads the public key for the receipts of a witness. @throws OperatorError */
export async function readWitnessKey(file: string): Promise<NoteKey> {
  const text = (await readOperatorFile(file, 'The key of the witness', maxKeyFileBytes)).toString('utf8').trim();
  try {
    const key = parseKey(text);
    if (key.purpose === 'receipt') return key;
  } catch (error) {
    if (!(error instanceof InvalidNote)) throw error;
  }
  throw new OperatorError(
    `The key of the witness ${file} is not a key for receipts: use the key that checkpoints head prints.`,
  );
}

/**
 * Reads all checkpoints.
 * @param since in milliseconds since 1970: a run whose newest checkpoint is older may be missing
 * @param err writes the progress: each checkpoint takes 0.25 ms
 * @throws OperatorError
 */
export async function readSignedRuns(
  given: GivenCheckpoints,
  since: number,
  err: CommandIo['err'],
): Promise<SignedRuns> {
  const signed = new SignedRuns(given.keys, since, given.witnessed);
  signed.add(given);
  let count = 0;
  for await (const lines of given.lines()) {
    for (const line of lines) {
      signed.take(line);
      count += 1;
      if (count % betweenProgress === 0) err(`${count} checkpoints read\n`);
    }
  }
  signed.link();
  return signed;
}
