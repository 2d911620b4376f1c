import { entryHash, MerkleTree } from '../evidence/merkle-tree.js';
import {
  forPurpose,
  InvalidNote,
  type NoteKey,
  parseNote,
  receiptTimeOf,
  type SignedNote,
} from '../evidence/signed-note.js';
import { listEntry, readListHead } from '../evidence/submission.js';
import { counted } from './finding.js';

/** The public keys of a witness: the present one, and former ones if its key was replaced. */
export class WitnessKeys {
  readonly #receiptKeys: readonly NoteKey[];
  readonly #headKeys: readonly NoteKey[];

  /** @param keys for receipts */
  constructor(keys: readonly NoteKey[]) {
    this.#receiptKeys = keys;
    this.#headKeys = keys.map((key) => forPurpose(key, 'note'));
  }

  /** When the witness received a note, in milliseconds since 1970; null without a valid receipt of a given key. */
  receiptTimeOf(note: SignedNote): number | null {
    for (const key of this.#receiptKeys) {
      const time = receiptTimeOf(note, key);
      if (time !== null) return time;
    }
    return null;
  }

  /** The given key that signed a head, by its name and id; null if it is none of them. @throws InvalidNote */
  headKeyOf(head: string): NoteKey | null {
    const { signatures } = parseNote(head);
    const isSigner = ({ name, id }: NoteKey): boolean =>
      signatures.some((signature) => signature.name === name && signature.id.equals(id));
    return this.#headKeys.find(isSigner) ?? null;
  }
}

/** Compares the given list of checkpoints of a witness with the list heads that the witness signed. */
export class WitnessedList {
  readonly keys: WitnessKeys;
  /** Whether the list itself is given, and not only the keys of its witness. */
  readonly isGiven: boolean;
  /** The number of heads that were not compared, because no given key has signed them. */
  #unknownHeads = 0;
  readonly #tree = new MerkleTree();
  /** The root of the list at each size, in hex. */
  readonly #roots = [this.#tree.root().toString('hex')];

  /**
   * @param keys for receipts: the present key of the witness, and former ones
   * @param isGiven false if only the keys of the witness are known: then list heads are not compared
   */
  constructor(keys: readonly NoteKey[], isGiven = true) {
    [this.keys, this.isGiven] = [new WitnessKeys(keys), isGiven];
  }

  /** What could not be compared. Call it after the last head. */
  get notes(): string[] {
    return this.#unknownHeads === 0
      ? []
      : [
          `${counted(this.#unknownHeads, 'head')} of the witness's list could not be compared, because no given key has signed it: add the former public key with --witness-key`,
        ];
  }

  /** Takes the next checkpoint of the list. @param receivedAt in milliseconds since 1970 */
  take(receivedAt: number, note: string): void {
    this.#tree.append(entryHash(listEntry(receivedAt, note)));
    this.#roots.push(this.#tree.root().toString('hex'));
  }

  /**
   * The difference between the list and a signed head; null if they match, or if no given key has signed the head. Call
   * it after the last checkpoint.
   */
  unlike(head: string): string | null {
    if (!this.isGiven) return null;
    try {
      const key = this.keys.headKeyOf(head);
      if (key === null) {
        this.#unknownHeads += 1;
        return null;
      }
      const { size, root } = readListHead(head, key);
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
