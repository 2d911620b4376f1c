import { digestBytes } from './merkle-tree.js';
import { InvalidNote, isSignedBy, keyText, type NoteKey, type NoteSigner, parseKey, parseNote } from './signed-note.js';

/** Why a run was signed: it began, some time has passed, or it has ended. */
type CheckpointOccasion = 'start' | 'periodic' | 'end';

/** The last line of a run. */
export interface RunEnd {
  readonly run: string;
  /** Its number, which is how many lines the run has. */
  readonly size: number;
  /** Its hash. */
  readonly hash: Buffer;
}

/** What is signed of a run: its first lines, up to a number. */
export interface Checkpoint {
  /** The name of the instance key. */
  readonly name: string;
  /** `service.ephemeral_id` of the lines. */
  readonly run: string;
  /** How many lines are covered. */
  readonly size: number;
  /** The root of the tree over their hashes. */
  readonly root: Buffer;
  readonly occasion: CheckpointOccasion;
  /** When, in milliseconds since 1970, by the clock of the process. */
  readonly at: number;
  /** Of a start: what the log ended with; null where nothing stood there. Of others undefined. */
  readonly previous?: RunEnd | null | undefined;
  /** Of the end of a file that was rotated: the run in the next file. */
  readonly next?: string | undefined;
}

/** A checkpoint that was read, and the run's key that it names. */
export interface ReadCheckpoint extends Checkpoint {
  readonly runKey: NoteKey;
}

const runForm = /^[0-9A-HJKMNP-TV-Z]{26}$/;
const sizeForm = /^[1-9]\d{0,14}$/;
const occasionForm = /^(start|periodic|end) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)$/;

/**
 * Signs a checkpoint with the key of the instance, which is a file, and with that of the run, which is in memory alone: whoever steals
 * the one later cannot sign for a run that has ended.
 * @returns a C2SP tlog-checkpoint as a signed note
 */
export function signCheckpoint(checkpoint: Checkpoint, instance: NoteSigner, run: NoteSigner): string {
  const text = textOf(checkpoint, run.key);
  return `${text}\n${instance.lineFor(text)}${run.lineFor(text)}`;
}

/** Reads a checkpoint, and requires the signatures of both keys. @throws InvalidNote */
export function readCheckpoint(note: string, instances: readonly NoteKey[]): ReadCheckpoint {
  const signed = parseNote(note);
  const checkpoint = parseText(signed.text);
  if (!instances.some((key) => key.name === checkpoint.name && isSignedBy(signed, key)))
    throw new InvalidNote('no given public key has signed it');
  if (!isSignedBy(signed, checkpoint.runKey)) throw new InvalidNote('the key of its run has not signed it');
  return checkpoint;
}

/** What a run's signatures are made under. */
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
  if (more.length > 0) throw new InvalidNote('expected nothing behind the key of the run');
  if (runKey.name !== origin) throw new InvalidNote('the key is that of another run');
  if (next !== undefined && !runForm.test(next)) throw new InvalidNote('expected the next run');
  return {
    ...{ name, run, size: Number(size), root: parseDigest(root), occasion: occasion as CheckpointOccasion },
    ...{ at: Date.parse(time), previous, next, runKey },
  };
}

/** Takes the next line, where it begins so; undefined where it does not. */
function take(lines: string[], head: string): string | undefined {
  return lines[0]?.startsWith(head) === true ? lines.shift()?.slice(head.length) : undefined;
}

function parsePrevious(text: string | undefined): RunEnd | null {
  if (text === 'none') return null;
  const [run = '', size = '', hash = '', ...more] = text?.split(' ') ?? [];
  if (!runForm.test(run) || !sizeForm.test(size) || more.length > 0)
    throw new InvalidNote('expected what the log ended with before');
  return { run, size: Number(size), hash: parseDigest(hash) };
}

/** @throws InvalidNote */
export function parseDigest(text: string): Buffer {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length !== digestBytes || bytes.toString('base64') !== text)
    throw new InvalidNote('expected a SHA-256 hash in base64');
  return bytes;
}
