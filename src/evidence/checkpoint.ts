import { digestBytes } from './merkle-tree.js';
import { InvalidNote, isSignedBy, keyText, type NoteKey, type NoteSigner, parseKey, parseNote } from './signed-note.js';

/**
 * Why a checkpoint was signed: a run (the lines of one gateway process) began, the interval between checkpoints passed,
 * or the run ended.
 */
type CheckpointOccasion = 'start' | 'periodic' | 'end';

/** The last line of a run. A run is the hash chain of one gateway process, or of one file of that process. */
export interface RunEnd {
  readonly run: string;
  /** The number of lines of the run (log of one process), which is also the number of its last line. */
  readonly size: number;
  readonly hash: Buffer;
}

/** A signed statement about a run (log of one process): the number of its lines so far, and their Merkle root. */
export interface Checkpoint {
  /** The name of the instance key, the long-lived signing key of a gateway. */
  readonly name: string;
  /**
   * The id of the run (the lines of one gateway process). Each of its lines contains the id as `service.ephemeral_id`.
   */
  readonly run: string;
  /** How many lines of the run (log of one process) the checkpoint covers, from the first line on. */
  readonly size: number;
  /** The root of the Merkle tree over the hashes of the covered lines. */
  readonly root: Buffer;
  readonly occasion: CheckpointOccasion;
  /** When the checkpoint was signed, by the gateway's clock, in milliseconds since 1970. */
  readonly at: number;
  /**
   * The last line of the log before this run (log of one process or file); null if the log was empty. Only in a start
   * checkpoint.
   */
  readonly previous?: RunEnd | null | undefined;
  /** The id of the run (hash chain) in the next file. Only in the end checkpoint of a rotated file. */
  readonly next?: string | undefined;
}

/**
 * A parsed checkpoint, with the public run key. A run key exists only for one run (the lines of one gateway process).
 */
export interface ReadCheckpoint extends Checkpoint {
  readonly runKey: NoteKey;
}

const runForm = /^[0-9A-HJKMNP-TV-Z]{26}$/;
const sizeForm = /^[1-9]\d{0,14}$/;
const occasionForm = /^(start|periodic|end) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)$/;

/**
 * Signs a checkpoint with two keys: the instance key, stored in a file, and the run key, which exists only in memory,
 * until the run (log of one process or file) ends. A thief of the instance key therefore cannot sign for ended runs.
 * @returns a C2SP tlog-checkpoint as a signed note
 */
export function signCheckpoint(checkpoint: Checkpoint, instance: NoteSigner, run: NoteSigner): string {
  const text = textOf(checkpoint, run.key);
  return `${text}\n${instance.lineFor(text)}${run.lineFor(text)}`;
}

/**
 * Thrown if the instance key (the gateway's long-lived key) signed a checkpoint, but the run key, which exists only for
 * the log of one process, did not.
 */
export class NotSignedByRun extends InvalidNote {
  constructor(
    readonly instance: NoteKey,
    readonly checkpoint: ReadCheckpoint,
  ) {
    super(
      'no signature matches the run key in the checkpoint (the key of one gateway process): the checkpoint was changed, or was signed without that key',
    );
  }
}

/**
 * Parses a checkpoint and verifies both signatures: of the instance key (of the gateway) and of the run key (of the
 * process).
 * @throws InvalidNote, NotSignedByRun
 */
export function readCheckpoint(note: string, instances: readonly NoteKey[]): ReadCheckpoint {
  const signed = parseNote(note);
  const checkpoint = parseText(signed.text);
  const instance = instances.find((key) => key.name === checkpoint.name && isSignedBy(signed, key));
  if (instance === undefined) throw new InvalidNote('no signature matches any of the given public keys');
  if (!isSignedBy(signed, checkpoint.runKey)) throw new NotSignedByRun(instance, checkpoint);
  return checkpoint;
}

/** Returns the name of the run key (which exists for the log of one process), as it appears in the signature lines. */
export function runKeyName(name: string, run: string): string {
  return `${name}/${run}`;
}

function textOf({ name, run, size, root, occasion, at, previous, next }: Checkpoint, runKey: NoteKey): string {
  return [
    runKeyName(name, run),
    String(size),
    root.toString('base64'),
    `${occasion} ${new Date(at).toISOString()}`,
    ...(previous === undefined ? [] : [`previous ${previous === null ? 'none' : endText(previous)}`]),
    ...(next === undefined ? [] : [`next ${next}`]),
    `key ${keyText(runKey)}`,
    '',
  ].join('\n');
}

function endText({ run, size, hash }: RunEnd): string {
  return `${run} ${size} ${hash.toString('base64')}`;
}

function parseText(text: string): ReadCheckpoint {
  const [origin = '', size = '', root = '', when = '', ...more] = text.slice(0, -1).split('\n');
  const slash = origin.lastIndexOf('/');
  const [name, run] = [origin.slice(0, slash), origin.slice(slash + 1)];
  const [, occasion, time = ''] = occasionForm.exec(when) ?? [];
  if (slash <= 0 || !runForm.test(run))
    throw new InvalidNote('the first line of the checkpoint must be LOG_NAME/RUN_ID');
  if (!sizeForm.test(size)) throw new InvalidNote('the number of log lines must be a decimal number');
  if (occasion === undefined || Number.isNaN(Date.parse(time)))
    throw new InvalidNote(
      'the fourth line of the checkpoint must be OCCASION TIME, where OCCASION is start, periodic or end',
    );
  const previous = occasion === 'start' ? parsePrevious(take(more, 'previous ')) : undefined;
  const next = occasion === 'end' ? take(more, 'next ') : undefined;
  const runKey = parseKey(take(more, 'key ') ?? '');
  if (more.length > 0) throw new InvalidNote('expected no line after the public key of the run');
  if (runKey.name !== origin) throw new InvalidNote('the run key in the checkpoint belongs to another run');
  if (next !== undefined && !runForm.test(next))
    throw new InvalidNote('the line "next" of the checkpoint must contain the id of the next run');
  return {
    ...{ name, run, size: Number(size), root: parseDigest(root), occasion: occasion as CheckpointOccasion },
    ...{ at: Date.parse(time), previous, next, runKey },
  };
}

/** Removes the first line if it begins with `head`, and returns the rest of that line; otherwise returns undefined. */
function take(lines: string[], head: string): string | undefined {
  return lines[0]?.startsWith(head) === true ? lines.shift()?.slice(head.length) : undefined;
}

function parsePrevious(text: string | undefined): RunEnd | null {
  if (text === 'none') return null;
  const [run = '', size = '', hash = '', ...more] = text?.split(' ') ?? [];
  if (!runForm.test(run) || !sizeForm.test(size) || more.length > 0)
    throw new InvalidNote('the line about the previous run must be RUN_ID NUMBER_OF_LINES HASH');
  return { run, size: Number(size), hash: parseDigest(hash) };
}

/** Parses a SHA-256 digest from base64. @throws InvalidNote */
export function parseDigest(text: string): Buffer {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length !== digestBytes || bytes.toString('base64') !== text)
    throw new InvalidNote('expected a SHA-256 hash in base64');
  return bytes;
}
