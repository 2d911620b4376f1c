import type { ReadCheckpoint } from '../evidence/checkpoint.js';
import type { LineProof } from '../evidence/line-proof.js';
import { InclusionPath, leafHash, rootOfPath } from '../evidence/merkle-tree.js';
import { InvalidNote } from '../evidence/signed-note.js';
import type { RawLine } from './log-lines.js';
import { parseSealedLine } from './sealed-line.js';
import { type GivenCheckpoint, type PinnedKey, readPinned } from './signed-runs.js';

/** A line that is to be proved, and where it stands. */
export interface FoundLine {
  readonly run: string;
  readonly sequence: number;
  readonly file: string;
  readonly number: number;
}

/**
 * Where a line stands; null where this is not it.
 * @param id its `event.id`, or `http.request.id`
 */
export function findLine({ bytes, file, number }: RawLine, id: string): FoundLine | null {
  // To read each line as JSON would take ten times as long.
  if (bytes?.includes(id) !== true) return null;
  const line = parseSealedLine(bytes);
  if (line === null) return null;
  return idsOf(bytes).includes(id) ? { run: line.id, sequence: line.sequence, file, number } : null;
}

/** The ids of a line; none of one that is damaged. */
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

/** Makes the proof of one line while the lines of its run pass by, in their order. */
export class LineProver {
  readonly #line: FoundLine;
  readonly #checkpoint: GivenCheckpoint;
  readonly #path: InclusionPath;
  #previous = '0'.repeat(64);
  #count = 0;
  #found: Pick<LineProof, 'previous' | 'line'> | null = null;

  /** @param checkpoint one of the line's run that covers it */
  constructor(line: FoundLine, checkpoint: GivenCheckpoint) {
    [this.#line, this.#checkpoint] = [line, checkpoint];
    this.#path = new InclusionPath(line.sequence - 1, checkpoint.size);
  }

  /** Takes the next line of the log, of whichever run it is. */
  take({ bytes }: RawLine): void {
    const line = bytes === null ? null : parseSealedLine(bytes);
    if (bytes === null || line?.id !== this.#line.run || this.#count >= this.#checkpoint.size) return;
    if (line.sequence !== this.#count + 1) return;
    this.#count += 1;
    if (line.sequence === this.#line.sequence) this.#found = { previous: this.#previous, line: Buffer.from(bytes) };
    this.#path.take(line.hash);
    this.#previous = line.hash;
  }

  /** The proof, which is to be checked; null where not all lines up to the checkpoint were there. */
  proof(): LineProof | null {
    if (this.#found === null || this.#count < this.#checkpoint.size) return null;
    const { note } = this.#checkpoint;
    return { ...this.#found, index: this.#line.sequence - 1, path: this.#path.hashes(), note };
  }
}

/**
 * Checks a proof with public keys alone.
 * @returns the checkpoint that covers the line
 * @throws InvalidNote that says what does not hold
 */
export function checkProof(
  { previous, line, index, path, note }: LineProof,
  keys: readonly PinnedKey[],
): ReadCheckpoint {
  const checkpoint = readPinned(note, keys);
  const sealed = parseSealedLine(line);
  if (sealed === null) throw new InvalidNote('its line is not the line of a log');
  if (sealed.id !== checkpoint.run) throw new InvalidNote('its line is of another run than the checkpoint');
  if (sealed.sequence !== index + 1) throw new InvalidNote('its line has another number than the proof says');
  const leaf = leafHash(previous, sealed.text);
  if (leaf !== sealed.hash) throw new InvalidNote('its line was changed');
  const root = rootOfPath(index, checkpoint.size, leaf, path);
  if (root?.equals(checkpoint.root) !== true) throw new InvalidNote('its line is not in what was signed');
  return checkpoint;
}
