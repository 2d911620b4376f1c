import type { ReadCheckpoint } from '../evidence/checkpoint.js';
import type { LineProof } from '../evidence/line-proof.js';
import { leafHash } from '../evidence/merkle-tree.js';
import { InclusionPath, rootOfPath } from '../evidence/tree-proof.js';
import { InvalidNote } from '../evidence/signed-note.js';
import type { RawLine } from './log-lines.js';
import { sealLength } from '../telemetry/chain.js';
import { parseSealedLine } from './sealed-line.js';
import type { GivenCheckpoint } from './signed-run.js';
import { type PinnedKey, readPinned } from './pinned-keys.js';
import type { WitnessKeys } from './witnessed-list.js';

/** A line to prove: the id of its hash chain (`run`), its number in the chain, and its position in a file. */
export interface FoundLine {
  readonly run: string;
  readonly sequence: number;
  readonly file: string;
  readonly number: number;
}

/**
 * Returns the position of a line if the line has this id; otherwise null.
 * @param id `event.id` or `http.request.id`
 */
export function findLine({ bytes, file, number }: RawLine, id: string): FoundLine | null {
  // Searching the bytes first is ten times as fast as parsing each line as JSON.
  if (bytes?.includes(id) !== true) return null;
  const line = parseSealedLine(bytes);
  if (line === null) return null;
  return idsOf(bytes).includes(id) ? { run: line.id, sequence: line.sequence, file, number } : null;
}

/** Returns the ids in a line; empty if the line is damaged. */
function idsOf(bytes: Buffer): unknown[] {
  try {
    const { event, http } = JSON.parse(bytes.toString('utf8')) as {
      readonly event?: { readonly id?: unknown } | null;
      readonly http?: { readonly request?: { readonly id?: unknown } | null } | null;
    };
    return [event?.id, http?.request?.id];
  } catch {
    return [];
  }
}

/** Builds the Merkle inclusion proof of one line. Reads the lines of the same hash chain once, in order. */
export class LineProver {
  readonly #line: FoundLine;
  readonly #checkpoint: GivenCheckpoint;
  readonly #path: InclusionPath;
  #previous = '0'.repeat(64);
  #count = 0;
  #found: Pick<LineProof, 'previous' | 'line'> | null = null;

  /** @param checkpoint a signed checkpoint that covers the line */
  constructor(line: FoundLine, checkpoint: GivenCheckpoint) {
    [this.#line, this.#checkpoint] = [line, checkpoint];
    this.#path = new InclusionPath(line.sequence - 1, checkpoint.size);
  }

  /** Adds the next line. Ignores lines of other chains, lines out of order, and lines beyond the checkpoint. */
  take({ bytes }: RawLine): void {
    const line = bytes === null ? null : parseSealedLine(bytes);
    if (bytes === null || line?.id !== this.#line.run || this.#count >= this.#checkpoint.size) return;
    if (line.sequence !== this.#count + 1) return;
    this.#count += 1;
    if (line.sequence === this.#line.sequence) this.#found = { previous: this.#previous, line: Buffer.from(bytes) };
    this.#path.take(line.hash);
    this.#previous = line.hash;
  }

  /** Returns the proof without verifying it; null if a line that the checkpoint covers is missing. */
  proof(): LineProof | null {
    if (this.#found === null || this.#count < this.#checkpoint.size) return null;
    const { note } = this.#checkpoint;
    return { ...this.#found, index: this.#line.sequence - 1, path: this.#path.hashes(), note };
  }
}

/**
 * Verifies the proof of a line. Needs only public keys.
 * @returns the checkpoint that covers the line
 * @throws InvalidNote if the proof is invalid; the message contains the reason
 */
export function checkProof(
  { previous, line, index, path, note }: LineProof,
  keys: readonly PinnedKey[],
  witness: WitnessKeys | null = null,
): ReadCheckpoint {
  const checkpoint = readPinned(note, keys, witness);
  const sealed = parseSealedLine(line);
  if (sealed === null) throw new InvalidNote('the proof contains no line of a log');
  if (sealed.id !== checkpoint.run)
    throw new InvalidNote('the line and the checkpoint in the proof belong to different log runs');
  if (sealed.sequence !== index + 1)
    throw new InvalidNote('the number of the line does not match the index in the proof');
  const leaf = leafHash(previous, line.subarray(0, -sealLength));
  if (leaf !== sealed.hash) throw new InvalidNote('the line in the proof was changed');
  const root = rootOfPath(index, checkpoint.size, leaf, path);
  if (root?.equals(checkpoint.root) !== true)
    throw new InvalidNote(
      'the line is not in the log that the checkpoint covers: the hashes in the proof do not lead to the signed root hash',
    );
  return checkpoint;
}
