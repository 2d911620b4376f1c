import { parseDigest } from './checkpoint.js';
import { InvalidNote } from './signed-note.js';

/**
 * A proof that a line belongs to a log. The verifier needs neither the log nor a secret, only the signer's public key.
 */
export interface LineProof {
  /** The hash of the previous line in hex; 64 zeros for the first line of a hash chain. */
  readonly previous: string;
  /** The proved line, without its line end. */
  readonly line: Buffer;
  /** The index of the line in its hash chain, from 0. */
  readonly index: number;
  /** The Merkle inclusion proof: the sibling hashes from the leaf to the root. */
  readonly path: readonly Buffer[];
  /** The signed checkpoint that contains the root. */
  readonly note: string;
}

const firstLine = 'c2sp.org/tlog-proof@v1';
const hashDigits = 64;
const mostPathHashes = 63;
/** Maximum length of a proof's text in characters. The proof of the longest line of a gateway is much shorter. */
const mostProofBytes = 1_048_576;
const extraForm = /^extra ([A-Za-z0-9+/]+={0,2})$/;
const indexForm = /^index (0|[1-9]\d{0,14})$/;

/** Formats a proof as text (c2sp.org/tlog-proof). */
export function proofText({ previous, line, index, path, note }: LineProof): string {
  const extra = Buffer.concat([Buffer.from(previous), line]).toString('base64');
  const hashes = path.map((hash) => `${hash.toString('base64')}\n`).join('');
  return `${firstLine}\nextra ${extra}\nindex ${index}\n${hashes}\n${note}`;
}

/** Parses the text of a proof, but does not verify it. @throws InvalidNote */
export function parseProof(text: string): LineProof {
  if (text.length > mostProofBytes) throw new InvalidNote(`the proof is longer than ${mostProofBytes} bytes`);
  const end = text.indexOf('\n\n');
  const [first, extra = '', at = '', ...path] = text.slice(0, Math.max(0, end)).split('\n');
  if (first !== firstLine) throw new InvalidNote(`the first line of the proof is not ${firstLine}`);
  const [, encoded = ''] = extraForm.exec(extra) ?? [];
  const [, index = ''] = indexForm.exec(at) ?? [];
  const entry = Buffer.from(encoded, 'base64');
  if (entry.length <= hashDigits)
    throw new InvalidNote(
      'the line "extra" of the proof must contain the hash of the previous log line, followed by the log line itself',
    );
  if (index === '') throw new InvalidNote('the third line of the proof must be "index" and the index of the log line');
  if (path.length > mostPathHashes) throw new InvalidNote(`the proof has more than ${mostPathHashes} hashes`);
  return {
    previous: entry.toString('latin1', 0, hashDigits),
    line: entry.subarray(hashDigits),
    index: Number(index),
    path: path.map(parseDigest),
    note: text.slice(end + '\n\n'.length),
  };
}
