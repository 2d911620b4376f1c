import { parseDigest } from './checkpoint.js';
import { InvalidNote, isSignedBy, type NoteKey, type NoteSigner, parseNote, type SignedNote } from './signed-note.js';

/**
 * A checkpoint that a gateway sends to the registry (c2sp.org/tlog-witness). The registry is the witness: it signs a
 * receipt for the checkpoint.
 */
export interface Submission {
  /**
   * How many access-log lines the previous checkpoint of this gateway process covers, according to the registry; 0 if
   * there is no previous checkpoint.
   */
  readonly oldSize: number;
  /** The Merkle consistency proof that this checkpoint's lines begin with the lines of the previous checkpoint. */
  readonly proof: readonly Buffer[];
  readonly note: string;
}

const oldForm = /^old (0|[1-9]\d{0,14})$/;
const mostProofHashes = 63;
const mostSubmissionBytes = 32_768;

/** Formats a checkpoint as the body of a request to the witness. */
export function submissionText({ oldSize, proof, note }: Submission): string {
  return `old ${oldSize}\n${proof.map((hash) => `${hash.toString('base64')}\n`).join('')}\n${note}`;
}

/** Parses the body of a request that sends a checkpoint to the witness. @throws InvalidNote */
export function parseSubmission(text: string): Submission {
  if (text.length > mostSubmissionBytes)
    throw new InvalidNote(`the submitted checkpoint is longer than ${mostSubmissionBytes} bytes`);
  const end = text.indexOf('\n\n');
  const [old = '', ...proof] = text.slice(0, Math.max(0, end)).split('\n');
  const [, oldSize] = oldForm.exec(old) ?? [];
  if (oldSize === undefined)
    throw new InvalidNote(
      'the first line of the submission must be "old" and the number of lines that the registry knows, such as "old 3"',
    );
  if (proof.length > mostProofHashes)
    throw new InvalidNote(`the consistency proof has more than ${mostProofHashes} hashes`);
  return { oldSize: Number(oldSize), proof: proof.map(parseDigest), note: text.slice(end + '\n\n'.length) };
}

/**
 * The head of the witness's list of checkpoints: the length of the list, and the root of the Merkle tree over the list.
 * The witness signs the head.
 */
export interface ListHead {
  readonly size: number;
  readonly root: Buffer;
}

/** Returns the origin (first line of the signed text) for the head of a witness's list of checkpoints. */
function listName(witness: string): string {
  return `${witness}/checkpoints`;
}

/** Signs the head of a witness's list of checkpoints. Returns a signed note with the origin `<witness>/checkpoints`. */
export function signListHead({ size, root }: ListHead, witness: NoteSigner): string {
  const text = `${listName(witness.key.name)}\n${size}\n${root.toString('base64')}\n`;
  return `${text}\n${witness.lineFor(text)}`;
}

/**
 * Parses the signed head of a witness's list of checkpoints, and verifies the signature.
 * @param witness the note key of the witness
 * @throws InvalidNote
 */
export function readListHead(note: string, witness: NoteKey): ListHead {
  const signed: SignedNote = parseNote(note);
  if (!isSignedBy(signed, witness)) throw new InvalidNote('no signature matches the given key of the registry');
  const [origin, size = '', root = '', ...more] = signed.text.slice(0, -1).split('\n');
  if (origin !== listName(witness.name) || more.length > 0 || !/^(?:0|[1-9]\d{0,14})$/.test(size))
    throw new InvalidNote(
      `the signed list head must have three lines: "${listName(witness.name)}", the number of checkpoints, and the root hash`,
    );
  return { size: Number(size), root: parseDigest(root) };
}

/**
 * Formats an entry of a witness's list of checkpoints. The entry is a leaf of the Merkle tree over the list.
 * @param receivedAt when the witness received the checkpoint, in milliseconds since 1970
 */
export function listEntry(receivedAt: number, note: string): string {
  return `${receivedAt}\n${note}`;
}
