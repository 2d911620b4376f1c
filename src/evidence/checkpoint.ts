import { digestBytes } from './merkle-tree.js';
import { InvalidNote, isSignedBy, keyText, type NoteKey, type NoteSigner, parseKey, parseNote } from './signed-note.js';

/**
 * Why a checkpoint was signed. `start`: a run began. `periodic`: the interval between checkpoints passed. `end`: the
 * run ended. A run is the hash chain of one gateway process, or of one file of that process.
 */
type CheckpointOccasion = 'start' | 'periodic' | 'end';

/** The last line of a run. */
export interface RunEnd {
  readonly run: string;
  /** How many lines the run has. Lines are numbered from 1, so the last line has this number. */
  readonly size: number;
  readonly hash: Buffer;
}

/** A signed statement about a run: the number of its lines so far, and their Merkle root. */
export interface Checkpoint {
  /** The name of the instance key, the long-lived signing key of a gateway. */
  readonly name: string;
  /** The id of the run. Each line of the run contains this id as `service.ephemeral_id`. */
  readonly run: string;
  /** How many lines of the run the checkpoint covers, from the first line on. */
  readonly size: number;
  /** The root of the Merkle tree over the hashes of the covered lines. */
  readonly root: Buffer;
  readonly occasion: CheckpointOccasion;
  /** When the checkpoint was signed, by the gateway's clock, in milliseconds since 1970. */
  readonly at: number;
  /** The last line of the previous run; null if the log was empty before this run. Only in a start checkpoint. */
  readonly previous?: RunEnd | null | undefined;
  /** The id of the run in the next file. Only in the end checkpoint of a rotated file. */
  readonly next?: string | undefined;
}

/** A parsed checkpoint, with the public key of its run. Each run has a key of its own. */
export interface ReadCheckpoint extends Checkpoint {
  readonly runKey: NoteKey;
}

/** Regular expression of a run id: a ULID, whose digits are those of Crockford's base 32. */
export const runPattern = '[0-9A-HJKMNP-TV-Z]{26}';
/** Regular expression of a number of log lines, which is also the number of the last line. */
export const sizePattern = '[1-9]\\d{0,14}';
const runForm = new RegExp(`^${runPattern}$`);
const sizeForm = new RegExp(`^${sizePattern}$`);
const occasionForm = /^(start|periodic|end) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)$/;

/**
 * Signs a checkpoint with two keys. The instance key is stored in a file. The run key exists only in memory, and only
 * until the run ends. A thief of the instance key therefore cannot sign for ended runs.
 * @returns a C2SP tlog-checkpoint as a signed note
 */
export function signCheckpoint(checkpoint: Checkpoint, instance: NoteSigner, run: NoteSigner): string {
  const text = textOf(checkpoint, run.key);
  return `${text}\n${instance.lineFor(text)}${run.lineFor(text)}`;
}

/** Thrown if a checkpoint has a valid signature of the instance key, but no valid signature of the run key. */
export class NotSignedByRun extends InvalidNote {
  constructor(
    readonly instance: NoteKey,
    readonly checkpoint: ReadCheckpoint,
  ) {
    super(
      'no signature matches the run key that the checkpoint contains (the key of one gateway process): the checkpoint was changed, or was signed without this key',
    );
  }
}

/**
 * Parses a checkpoint and verifies its two signatures: one of the instance key, one of the run key.
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

/** Returns the name of a run key, as it appears in the signature lines. */
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
  if (!sizeForm.test(size)) throw new InvalidNote('the second line of the checkpoint must be the number of log lines');
  if (occasion === undefined || Number.isNaN(Date.parse(time)))
    throw new InvalidNote(
      'the fourth line of the checkpoint must be OCCASION TIME, where OCCASION is start, periodic or end',
    );
  const previous = occasion === 'start' ? parsePrevious(take(more, 'previous ')) : undefined;
  const next = occasion === 'end' ? take(more, 'next ') : undefined;
  const runKey = parseKey(take(more, 'key ') ?? '');
  if (more.length > 0) throw new InvalidNote('the checkpoint has an unknown line after the public key of the run');
  if (runKey.name !== origin) throw new InvalidNote('the run key in the checkpoint belongs to another run');
  if (next !== undefined && !runForm.test(next))
    throw new InvalidNote('the line "next" of the checkpoint must contain the id of the next run');
  return {
    ...{ name, run, size: Number(size), root: parseDigest(root), occasion: occasion as CheckpointOccasion },
    ...{ at: Date.parse(time), previous, next, runKey },
  };
}

/**
 * If the first line begins with `head`, removes the line from `lines` and returns its text after `head`. Otherwise
 * returns undefined.
 */
function take(lines: string[], head: string): string | undefined {
  return lines[0]?.startsWith(head) === true ? lines.shift()?.slice(head.length) : undefined;
}

function parsePrevious(text: string | undefined): RunEnd | null {
  if (text === 'none') return null;
  const [run = '', size = '', hash = '', ...more] = text?.split(' ') ?? [];
  if (!runForm.test(run) || !sizeForm.test(size) || more.length > 0)
    throw new InvalidNote(
      'a start checkpoint must have the line "previous RUN_ID NUMBER_OF_LINES HASH" or "previous none"',
    );
  return { run, size: Number(size), hash: parseDigest(hash) };
}

/** Parses a SHA-256 digest from base64. @throws InvalidNote */
export function parseDigest(text: string): Buffer {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length !== digestBytes || bytes.toString('base64') !== text)
    throw new InvalidNote('one of the hashes is not a SHA-256 hash in base64');
  return bytes;
}
