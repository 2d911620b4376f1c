import { statSync } from 'node:fs';
import { Option } from 'commander';
import { type RawLine, readLogLines } from '../../audit/log-lines.js';
import type { PinnedKey } from '../../audit/pinned-keys.js';
import { registryWord, SignedRuns } from '../../audit/signed-runs.js';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import type { Finding } from '../../audit/finding.js';
import { WitnessedList } from '../../audit/witnessed-list.js';
import { InvalidNote, type KeyPurpose, type NoteKey, parseKey } from '../../evidence/signed-note.js';
import { collect } from '../admin/arguments.js';
import type { CommandIo } from '../command-io.js';
import { parseTime } from './log-options.js';
import { fetchRegistryCheckpoints, type RegistryOptions } from './registry-checkpoints.js';

const whatHead = 'The head of the checkpoint list';
const betweenProgress = 20_000;
const maxKeyFileBytes = 64 * 1024;
const lineForm = /^(\S+)(?:\s+from\s+(\S+))?(?:\s+to\s+(\S+))?$/;

/** Creates the option `--public-key` of `audit verify`, `summary`, `prove` and `check-proof`. */
export function publicKeyOption(): Option {
  return new Option(
    '--public-key <file>',
    'file with the public keys of gateways, one per line, as "merchant-gateway audit public-key" prints them; "from TIME" and "to TIME" after a key limit its validity (repeatable)',
  ).argParser(collect);
}

/** Creates the option `--witness-key` of `audit verify`, `summary` and `check-proof`. */
export function witnessKeyOption(): Option {
  return new Option(
    '--witness-key <file>',
    'file with the current and former public keys that verify the registry\'s receipts, one per line, as "merchant-gateway checkpoints head" prints them (repeatable)',
  ).argParser(collect);
}

/** Creates the option `--head` of `audit verify` and `summary`. */
export function headOption(): Option {
  return new Option(
    '--head <file>',
    'file with an earlier signed head of the registry\'s checkpoint list, saved from "merchant-gateway checkpoints head --json"; a head is the length and the hash of the list; requires --checkpoints registry (repeatable)',
  ).argParser(collect);
}

/** Creates the option `--checkpoints` of `audit verify`, `summary` and `prove`. */
export function checkpointsOption(): Option {
  return new Option(
    '--checkpoints <file>',
    'file with signed checkpoints, such as the file that accessLog.checkpoints.file names (.gz files are decompressed), or "registry" to fetch the checkpoints from the registry (repeatable)',
  ).argParser(collect);
}

/** A type of public key, and the command that prints keys of this type. */
interface KeyType {
  readonly what: string;
  readonly purpose: KeyPurpose;
  readonly printedBy: string;
}

const ofInstances: KeyType = {
  what: 'The file of public keys',
  purpose: 'note',
  printedBy: 'merchant-gateway audit public-key',
};
const ofWitness: KeyType = {
  what: 'The file of witness keys',
  purpose: 'receipt',
  printedBy: 'merchant-gateway checkpoints head',
};

/**
 * Reads the public keys of gateway instances, and the period in which each key is valid.
 * @throws OperatorError
 */
export function readPublicKeys(files: readonly string[]): Promise<PinnedKey[]> {
  return readKeys(files, ofInstances);
}

/**
 * Reads the public keys that verify receipts (a registry's signed statements that it stored a checkpoint).
 * @throws OperatorError
 */
export async function readWitnessKeys(files: readonly string[]): Promise<NoteKey[]> {
  return files.length === 0 ? [] : (await readKeys(files, ofWitness)).map(({ key }) => key);
}

async function readKeys(files: readonly string[], { what, purpose, printedBy }: KeyType): Promise<PinnedKey[]> {
  const keys: PinnedKey[] = [];
  for (const file of files) {
    const lines = (await readOperatorFile(file, what, maxKeyFileBytes)).toString('utf8').split('\n');
    for (const [index, line] of lines.entries()) {
      const text = line.replace(/(?:^|\s)#.*$/, '').trim();
      if (text === '') continue;
      const where = `${what} ${file}, line ${index + 1}`;
      const pinned = pinnedKeyIn(text, where);
      if (pinned.key.purpose !== purpose)
        throw new OperatorError(`${where}: the key is for another purpose; use the key that "${printedBy}" prints.`);
      keys.push(pinned);
    }
  }
  if (keys.length === 0) throw new OperatorError(`${what} contains no key: add a key that "${printedBy}" prints.`);
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

/** Options for where checkpoints come from, and for the keys that verify them. */
export interface SignedOptions extends RegistryOptions {
  readonly checkpoints?: readonly string[];
  readonly publicKey?: readonly string[];
  readonly witnessKey?: readonly string[];
  readonly head?: readonly string[];
}

/** Checkpoints and the keys that verify them. */
export interface GivenCheckpoints {
  readonly keys: readonly PinnedKey[];
  /**
   * The keys that verify receipts (the registry's signed statements that it stored a checkpoint). Also contains the
   * registry's list of checkpoints if the list was fetched. Null: receipts are ignored.
   */
  readonly witnessed: WitnessedList | null;
  /** Notes about the keys from the registry, e.g. that a key is not confirmed. */
  readonly notes: readonly string[];
  /** Problems found in the registry's list of checkpoints. */
  readonly findings: readonly Finding[];
  /** When the checkpoints were fetched, in milliseconds since 1970. */
  readonly fetchedAt: number;
  /** Reads the checkpoints of the registry and of all files, as lines of checkpoint files. */
  lines(): AsyncIterable<readonly RawLine[]>;
  /**
   * Reads the checkpoints that the registry has received since the last fetch, and adds them to `witnessed`. Then reads
   * the checkpoint files again.
   */
  later(): AsyncIterable<readonly RawLine[]>;
}

/**
 * Describes which option is missing; null if the options are complete. `--head` requires `--checkpoints registry`.
 * Checkpoint files and `--public-key` require each other. `--checkpoints registry` needs no `--public-key`, because the
 * registry supplies the keys.
 */
export function usageProblem({ checkpoints, publicKey, head }: SignedOptions): string | null {
  const isOfRegistry = checkpoints?.includes(registryWord) === true;
  if (head !== undefined && !isOfRegistry) return '--head requires --checkpoints registry';
  return isOfRegistry || (checkpoints === undefined) === (publicKey === undefined)
    ? null
    : 'give both --checkpoints and --public-key; only "--checkpoints registry" works without --public-key';
}

/**
 * Opens the checkpoints that the options select.
 * @throws OperatorError
 */
export async function openGivenCheckpoints(options: SignedOptions, err: CommandIo['err']): Promise<GivenCheckpoints> {
  const { checkpoints = [], publicKey, witnessKey = [], head = [] } = options;
  const files = checkpoints.filter((name) => name !== registryWord);
  const pinned = await readWitnessKeys(witnessKey);
  const fetchedAt = Date.now();
  const registry = files.length === checkpoints.length ? null : await fetchRegistryCheckpoints(options, pinned, err);
  const given = publicKey === undefined ? null : await readPublicKeys(publicKey);
  const isOther = registry !== null && !pinned.some(({ bytes }) => bytes.equals(registry.receiptKey.bytes));
  if (isOther && pinned.length > 0)
    throw new OperatorError(
      'The registry signs receipts with a key that is not in the file of --witness-key. If the key was replaced, add the key that "merchant-gateway checkpoints head" prints.',
    );
  const problem = registry?.problem ?? null;
  return {
    keys: given ?? registry?.keys ?? [],
    witnessed: registry?.list ?? (pinned.length > 0 ? new WitnessedList(pinned, false) : null),
    notes: given === null ? (registry?.unconfirmed ?? []).map(unconfirmedNote) : [],
    findings: [
      ...(problem === null ? [] : [rewritten(registryWord, problem)]),
      ...(registry === null ? [] : await headFindings(head, registry.list)),
    ],
    fetchedAt,
    async *lines() {
      if (registry !== null) yield registry.lines;
      yield* readLogLines(files);
    },
    async *later() {
      if (registry !== null) yield await registry.later();
      // Read only regular files again: a pipe can be read only once.
      yield* readLogLines(files.filter((file) => statSync(file, { throwIfNoEntry: false })?.isFile() === true));
    },
  };
}

function unconfirmedNote(name: string): string {
  return `no administrator has confirmed the key of ${name}. Compare it with the output of "merchant-gateway audit public-key" on that gateway. If both are equal, run "merchant-gateway instance-keys confirm"`;
}

function rewritten(file: string, message: string): Finding {
  return { file, line: 1, kind: 'rewritten', message };
}

/**
 * Compares the registry's list of checkpoints with heads that the user stored earlier. A head is the length and the
 * Merkle root of the list, signed by the registry.
 * @throws OperatorError
 */
async function headFindings(files: readonly string[], list: WitnessedList): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const file of files) {
    const head = headIn((await readOperatorFile(file, whatHead, maxKeyFileBytes)).toString('utf8'));
    if (!isSigned(head, list))
      throw new OperatorError(
        `${whatHead} in ${file} is not signed with a known key of the registry. If the registry's key was replaced, add its former key with --witness-key. Otherwise give the output of "merchant-gateway checkpoints head --json".`,
      );
    const unlike = list.unlike(head);
    if (unlike !== null) findings.push(rewritten(file, unlike));
  }
  return findings;
}

function isSigned(head: string, { keys }: WitnessedList): boolean {
  try {
    return keys.headKeyOf(head) !== null;
  } catch (error) {
    if (error instanceof InvalidNote) return false;
    throw error;
  }
}

/**
 * Extracts the signed head (length and Merkle root) of a list of checkpoints. The text is the head itself, or the
 * output of `checkpoints head --json`. Returns an empty text if this JSON contains no head.
 */
function headIn(text: string): string {
  try {
    const value = JSON.parse(text) as { readonly head?: unknown } | null;
    return typeof value?.head === 'string' ? value.head : '';
  } catch {
    return text;
  }
}

/**
 * Reads all checkpoints and verifies their signatures. A log that lacks its last lines, or is missing altogether, is
 * reported only if its newest checkpoint is at or after `since`.
 * @param since in milliseconds since 1970
 * @param err prints the progress: verifying a checkpoint takes 0.25 ms, so a long log takes minutes
 * @throws OperatorError
 */
export async function readSignedRuns(
  given: GivenCheckpoints,
  since: number,
  err: CommandIo['err'],
): Promise<SignedRuns> {
  const signed = new SignedRuns(given.keys, since, given.witnessed, given.fetchedAt);
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

/**
 * If the log refers to checkpoints that are not known yet, reads the checkpoints that were stored while the log was
 * read. Call it after the last line of the log.
 * @throws OperatorError
 */
export async function readLaterCheckpoints(signed: SignedRuns, given: GivenCheckpoints): Promise<void> {
  if (!signed.isBehind) return;
  for await (const lines of given.later()) for (const line of lines) signed.takeLater(line);
}
