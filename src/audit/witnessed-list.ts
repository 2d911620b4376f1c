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

/** The public keys of a witness (the registry): the current one, and earlier ones if its key was replaced. */
export class WitnessKeys {
  readonly #receiptKeys: readonly NoteKey[];
  readonly #headKeys: readonly NoteKey[];

  /** @param keys the public keys that verify receipts (the registry's signatures that it stored a checkpoint) */
  constructor(keys: readonly NoteKey[]) {
    this.#receiptKeys = keys;
    this.#headKeys = keys.map((key) => forPurpose(key, 'note'));
  }

  /**
   * Returns the time at which the registry received a checkpoint, in milliseconds since 1970; null without a receipt
   * that one of these keys signed.
   */
  receiptTimeOf(note: SignedNote): number | null {
    for (const key of this.#receiptKeys) {
      const time = receiptTimeOf(note, key);
      if (time !== null) return time;
    }
    return null;
  }

  /**
   * Returns the key that a list head (length and Merkle root of the registry's list) names as its signer; null if it
   * names no key of this object. Does not verify the signature.
   * @throws InvalidNote
   */
  headKeyOf(head: string): NoteKey | null {
    const { signatures } = parseNote(head);
    const isSigner = ({ name, id }: NoteKey): boolean =>
      signatures.some((signature) => signature.name === name && signature.id.equals(id));
    return this.#headKeys.find(isSigner) ?? null;
  }
}

/**
 * Compares the registry's list of checkpoints with list heads (its length and Merkle root) that the registry signed
 * earlier. Detects removed and changed checkpoints.
 */
export class WitnessedList {
  readonly keys: WitnessKeys;
  /** Whether the list itself is given. If false, only the public keys of the registry are given. */
  readonly isGiven: boolean;
  /**
   * How many signed heads of the list (its length and Merkle root) could not be compared, because their key was not
   * given.
   */
  #unknownHeads = 0;
  readonly #tree = new MerkleTree();
  /** The Merkle root of the list at each size, in hex. */
  readonly #roots = [this.#tree.root().toString('hex')];

  /**
   * @param keys the public keys that verify the registry's receipts: the current one and replaced ones
   * @param isGiven false if the keys are known, but not the list; then signed heads (length and Merkle root) of the
   * list are not compared
   */
  constructor(keys: readonly NoteKey[], isGiven = true) {
    [this.keys, this.isGiven] = [new WitnessKeys(keys), isGiven];
  }

  /**
   * Notes about signed heads of the list (its length and Merkle root) that could not be compared. Read them after the
   * last head.
   */
  get notes(): string[] {
    return this.#unknownHeads === 0
      ? []
      : [
          `${counted(this.#unknownHeads, 'signed head')} (length and hash) of the registry's checkpoint list could not be compared, because no signature matches a given key: add the registry's former public key with --witness-key`,
        ];
  }

  /** Adds the next checkpoint of the registry's list. @param receivedAt in milliseconds since 1970 */
  take(receivedAt: number, note: string): void {
    this.#tree.append(entryHash(listEntry(receivedAt, note)));
    this.#roots.push(this.#tree.root().toString('hex'));
  }

  /**
   * Compares the list with a list head (length and Merkle root) that the registry signed earlier. Call it after the
   * last checkpoint.
   * @returns how they differ; null if they match, if the list is not given, or if the key of the head is unknown
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
        return `the registry signed a list of ${size} checkpoints, but its list now has only ${this.#tree.size}: checkpoints were removed`;
      return own === root.toString('hex')
        ? null
        : `the first ${size} checkpoints in the registry's list differ from those that it signed earlier`;
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
      return `the signed head of the registry's checkpoint list is invalid: ${error.message}`;
    }
  }
}
