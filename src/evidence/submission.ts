import { parseDigest } from './checkpoint.js';
import { InvalidNote, isSignedBy, type NoteKey, type NoteSigner, parseNote, type SignedNote } from './signed-note.js';

/** A checkpoint sent to a witness (c2sp.org/tlog-witness). */
export interface Submission {
  /** The number of lines in the run's previous checkpoint at the witness; 0 without one. */
  readonly oldSize: number;
  /** The consistency proof that the lines of this checkpoint begin with those of the previous one. */
  readonly proof: readonly Buffer[];
  readonly note: string;
}

const oldForm = /^old (0|[1-9]\d{0,14})$/;
const mostProofHashes = 63;
const mostSubmissionBytes = 32_768;

/** The request body of a submission. */
export function submissionText({ oldSize, proof, note }: Submission): string {
  return `old ${oldSize}\n${proof.map((hash) => `${hash.toString('base64')}\n`).join('')}\n${note}`;
}

/** Parses the request body of a submission. @throws InvalidNote */
export function parseSubmission(text: string): Submission {
  if (text.length > mostSubmissionBytes)
    throw new InvalidNote(`expected a submission of at most ${mostSubmissionBytes} bytes`);
  const end = text.indexOf('\n\n');
  const [old = '', ...proof] = text.slice(0, Math.max(0, end)).split('\n');
  const [, oldSize] = oldForm.exec(old) ?? [];
  if (oldSize === undefined) throw new InvalidNote('expected the known size, e.g. old 3');
  if (proof.length > mostProofHashes) throw new InvalidNote(`expected at most ${mostProofHashes} hashes of a proof`);
  return { oldSize: Number(oldSize), proof: proof.map(parseDigest), note: text.slice(end + '\n\n'.length) };
}

/** The signed head of a witness's list: its number of checkpoints and the root of the tree over them. */
export interface ListHead {
  readonly size: number;
  readonly root: Buffer;
}

/** The origin in the signed head of a witness's list. */
function listName(witness: string): string {
  return `${witness}/checkpoints`;
}

/** Signs the head of a witness's list: a note whose origin is `<witness>/checkpoints`. */
export function signListHead({ size, root }: ListHead, witness: NoteSigner): string {
  const text = `${listName(witness.key.name)}\n${size}\n${root.toString('base64')}\n`;
  return `${text}\n${witness.lineFor(text)}`;
}

/** Reads the head of a list and requires the witness's signature. @param witness its note key @throws InvalidNote */
export function readListHead(note: string, witness: NoteKey): ListHead {
  const signed: SignedNote = parseNote(note);
  if (!isSignedBy(signed, witness)) throw new InvalidNote('the given key of the witness has not signed it');
  const [origin, size = '', root = '', ...more] = signed.text.slice(0, -1).split('\n');
  if (origin !== listName(witness.name) || more.length > 0 || !/^(?:0|[1-9]\d{0,14})$/.test(size))
    throw new InvalidNote('expected the head of a list of checkpoints');
  return { size: Number(size), root: parseDigest(root) };
}

/**
 * An entry of the list, a leaf of its tree: the time of receipt and the note.
 * @param receivedAt in milliseconds since 1970
 */
export function listEntry(receivedAt: number, note: string): string {
  return `${receivedAt}\n${note}`;
}
