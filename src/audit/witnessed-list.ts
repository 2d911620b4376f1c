import { entryHash, MerkleTree } from '../evidence/merkle-tree.js';
import { forPurpose, InvalidNote, type NoteKey } from '../evidence/signed-note.js';
import { listEntry, readListHead } from '../evidence/submission.js';

/** Compares the given list of checkpoints of a witness with the list heads that the witness signed. */
export class WitnessedList {
  /** The key of the witness's receipts. */
  readonly key: NoteKey;
  readonly #headKey: NoteKey;
  /** Whether the list itself is given, and not only the key of its witness. */
  readonly isGiven: boolean;
  readonly #tree = new MerkleTree();
  /** The root of the list at each size, in hex. */
  readonly #roots = [this.#tree.root().toString('hex')];

  /** @param isGiven false if only the key of the witness is known: then list heads are not compared */
  constructor(key: NoteKey, isGiven = true) {
    this.isGiven = isGiven;
    [this.key, this.#headKey] = [key, forPurpose(key, 'note')];
  }

  /** Takes the next checkpoint of the list. @param receivedAt in milliseconds since 1970 */
  take(receivedAt: number, note: string): void {
    this.#tree.append(entryHash(listEntry(receivedAt, note)));
    this.#roots.push(this.#tree.root().toString('hex'));
  }

  /** The difference between the list and a signed head; null if they match. Call it after the last checkpoint. */
  unlike(head: string): string | null {
    if (!this.isGiven) return null;
    try {
      const { size, root } = readListHead(head, this.#headKey);
      const own = this.#roots[size];
      if (own === undefined)
        return `the witness signed a list of ${size} checkpoints, but its list now has ${this.#tree.size}: some were removed`;
      return own === root.toString('hex')
        ? null
        : `the first ${size} checkpoints of the witness are not the ones that it signed`;
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
      return `invalid head of the witness's list: ${error.message}`;
    }
  }
}
