import { digestBytes } from './merkle-tree.js';
import { InvalidNote, isSignedBy, keyText, type NoteKey, type NoteSigner, parseKey, parseNote } from './signed-note.js';

/** Why a checkpoint was signed: the run began, the interval has passed, or the run ended. */
type CheckpointOccasion = 'start' | 'periodic' | 'end';

/** The last line of a run. */
export interface RunEnd {
  readonly run: string;
  /** The number of lines of the run, which is the number of its last line. */
  readonly size: number;
  /** The hash of the last line. */
  readonly hash: Buffer;
}

/** The signed statement about a run: the number of its first lines and their root. */
export interface Checkpoint {
  /** The name of the instance key. */
  readonly name: string;
  /** `service.ephemeral_id` of the lines. */
  readonly run: string;
  /** The number of covered lines. */
  readonly size: number;
  /** The root of the tree over their hashes. */
  readonly root: Buffer;
  readonly occasion: CheckpointOccasion;
  /** Time of the process's clock, in milliseconds since 1970. */
  readonly at: number;
  /** The end of the log before this run; null for an empty log. Only in a start checkpoint, otherwise undefined. */
  readonly previous?: RunEnd | null | undefined;
  /** The run in the next file, in the end checkpoint of a rotated file. */
  readonly next?: string | undefined;
}

/** A parsed checkpoint and the run key that it names. */
export interface ReadCheckpoint extends Checkpoint {
  readonly runKey: NoteKey;
}

const runForm = /^[0-9A-HJKMNP-TV-Z]{26}$/;
const sizeForm = /^[1-9]\d{0,14}$/;
const occasionForm = /^(start|periodic|end) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)$/;

/**
 * Signs a checkpoint with the instance key, which is a file, and with the run key, which exists only in memory. A thief
 * of the instance key cannot sign for runs that have ended.
 * @returns a C2SP tlog-checkpoint as a signed note
 */
export function signCheckpoint(checkpoint: Checkpoint, instance: NoteSigner, run: NoteSigner): string {
  const text = textOf(checkpoint, run.key);
  return `${text}\n${instance.lineFor(text)}${run.lineFor(text)}`;
}

/** A checkpoint has the signature of its instance but not that of its run. */
export class NotSignedByRun extends InvalidNote {
  constructor(
    readonly instance: NoteKey,
    readonly checkpoint: ReadCheckpoint,
  ) {
    super('the key of its run has not signed it');
  }
}

/** Reads a checkpoint and requires the signatures of both keys. @throws InvalidNote, NotSignedByRun */
export function readCheckpoint(note: string, instances: readonly NoteKey[]): ReadCheckpoint {
  const signed = parseNote(note);
  const checkpoint = parseText(signed.text);
  const instance = instances.find((key) => key.name === checkpoint.name && isSignedBy(signed, key));
  if (instance === undefined) throw new InvalidNote('no given public key has signed it');
  if (!isSignedBy(signed, checkpoint.runKey)) throw new NotSignedByRun(instance, checkpoint);
  return checkpoint;
}

/** The key name in the signatures of a run. */
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
  if (slash <= 0 || !runForm.test(run)) throw new InvalidNote('expected the name of a log and of its run');
  if (!sizeForm.test(size)) throw new InvalidNote('expected the number of lines');
  if (occasion === undefined || Number.isNaN(Date.parse(time)))
    throw new InvalidNote('expected an occasion and a time');
  const previous = occasion === 'start' ? parsePrevious(take(more, 'previous ')) : undefined;
  const next = occasion === 'end' ? take(more, 'next ') : undefined;
  const runKey = parseKey(take(more, 'key ') ?? '');
  if (more.length > 0) throw new InvalidNote('expected nothing after the key of the run');
  if (runKey.name !== origin) throw new InvalidNote('its run key belongs to another run');
  if (next !== undefined && !runForm.test(next)) throw new InvalidNote('expected the next run');
  return {
    ...{ name, run, size: Number(size), root: parseDigest(root), occasion: occasion as CheckpointOccasion },
    ...{ at: Date.parse(time), previous, next, runKey },
  };
}

/** Removes the next line if it begins with `head`, and returns the rest of that line; otherwise undefined. */
function take(lines: string[], head: string): string | undefined {
  return lines[0]?.startsWith(head) === true ? lines.shift()?.slice(head.length) : undefined;
}

function parsePrevious(text: string | undefined): RunEnd | null {
  if (text === 'none') return null;
  const [run = '', size = '', hash = '', ...more] = text?.split(' ') ?? [];
  if (!runForm.test(run) || !sizeForm.test(size) || more.length > 0)
    throw new InvalidNote('expected the end of the previous run');
  return { run, size: Number(size), hash: parseDigest(hash) };
}

/** Parses a SHA-256 digest in base64. @throws InvalidNote */
export function parseDigest(text: string): Buffer {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length !== digestBytes || bytes.toString('base64') !== text)
    throw new InvalidNote('expected a SHA-256 hash in base64');
  return bytes;
}
