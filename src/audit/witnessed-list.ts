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
import { counted, type Finding, type Position } from './finding.js';
import type { Mismatch } from './signed-run.js';

/** The public keys of a witness (the registry): the current key, and earlier keys that were replaced. */
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
   * Returns which of these keys a list head names as its signer; null if it names none of them. A list head states the
   * length and the Merkle root of the registry's list. Does not verify the signature.
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
 * Compares the registry's list of checkpoints with list heads that the registry signed earlier. A list head states the
 * length and the Merkle root of the list. Detects removed and changed checkpoints.
 */
export class WitnessedList {
  readonly keys: WitnessKeys;
  /** Whether the list itself is given. If false, only the public keys of the registry are given. */
  readonly isGiven: boolean;
  /** How many list heads could not be compared, because their key was not given. */
  #unknownHeads = 0;
  readonly #tree = new MerkleTree();
  /** The Merkle root of the list at each size, in hex. */
  readonly #roots = [this.#tree.root().toString('hex')];

  /**
   * @param keys the public keys that verify the registry's receipts: the current key and replaced keys
   * @param isGiven false if only the keys are known; list heads are then not compared
   */
  constructor(keys: readonly NoteKey[], isGiven = true) {
    [this.keys, this.isGiven] = [new WitnessKeys(keys), isGiven];
  }

  /** Number of checkpoints in the list. */
  get size(): number {
    return this.#tree.size;
  }

  /** Notes about list heads that could not be compared. Read them after the last head. */
  get notes(): string[] {
    return this.#unknownHeads === 0
      ? []
      : [
          `${counted(this.#unknownHeads, 'signed head')} of the registry's checkpoint list could not be compared, because no signature matches a given key: add the registry's former public key with --witness-key. A head is the length and the hash of the list`,
        ];
  }

  /** Adds the next checkpoint of the registry's list. @param receivedAt in milliseconds since 1970 */
  take(receivedAt: number, note: string): void {
    this.#tree.append(entryHash(listEntry(receivedAt, note)));
    this.#roots.push(this.#tree.root().toString('hex'));
  }

  /**
   * Compares the list with a list head that the registry signed earlier. Call it after the last checkpoint.
   * @returns how list and head differ; null if they match, the list is not given, or the head's key is not given
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
        return `the registry signed a list of ${counted(size, 'checkpoint')}, but its list now has only ${this.#tree.size}: checkpoints were removed`;
      return own === root.toString('hex')
        ? null
        : `the registry's checkpoint list was changed: its beginning (${counted(size, 'checkpoint')}) differs from the list that the registry signed earlier`;
    } catch (error) {
      if (!(error instanceof InvalidNote)) throw error;
      return `the signed head of the registry's checkpoint list is invalid: ${error.message}`;
    }
  }
}

/** What the registry has signed in one line of a log or of a checkpoint file. */
interface WitnessedClaim {
  /** A signed head of the registry's list. */
  readonly head?: string | undefined;
  /** A checkpoint with a receipt: its run (the lines of one process in one file) and the number of covered lines. */
  readonly receipt?: { readonly run: string; readonly size: number };
}

/** Maximum number of claims that wait for later checkpoints. An attacker can write any number of claims into a log. */
const mostPending = 1_000;

/**
 * Compares what the registry signed with what it stores. The registry receives checkpoints while a log is read. So a
 * claim that contradicts the known checkpoints is judged again at the end, after later checkpoints were added.
 */
export class WitnessedClaims {
  readonly #witnessed: WitnessedList;
  /** For each run, how many lines the newest known checkpoint covers. */
  readonly #known = new Map<string, number>();
  readonly #pending: (WitnessedClaim & { readonly place: Position })[] = [];

  constructor(witnessed: WitnessedList) {
    this.#witnessed = witnessed;
  }

  /** Whether claims wait to be judged again, because they contradict the checkpoints that are known so far. */
  get arePending(): boolean {
    return this.#pending.length > 0;
  }

  /** Adds a checkpoint that the registry stores or, if its list is not given, a checkpoint from a file. */
  know(run: string, size: number): void {
    this.#known.set(run, Math.max(size, this.#known.get(run) ?? 0));
  }

  /**
   * Compares a claim with the known checkpoints.
   * @returns the contradiction; null without one, or if `findings` will judge the claim again later
   */
  compare(claim: WitnessedClaim, place: Position): Mismatch | null {
    const mismatch = this.#judge(claim);
    if (mismatch === null || this.#pending.length >= mostPending) return mismatch;
    this.#pending.push({ ...claim, place });
    return null;
  }

  /** Returns the claims that the known checkpoints still contradict. Call it after the last checkpoint. */
  findings(): Finding[] {
    return this.#pending.flatMap(({ place, ...claim }): Finding[] => {
      const mismatch = this.#judge(claim);
      return mismatch === null ? [] : [{ ...place, ...mismatch }];
    });
  }

  #judge({ head, receipt }: WitnessedClaim): Mismatch | null {
    const lost = receipt === undefined ? null : this.#lost(receipt);
    const message = lost ?? (head === undefined ? null : this.#witnessed.unlike(head));
    return message === null ? null : { kind: 'rewritten', message };
  }

  /**
   * Returns a message if the registry signed a receipt for `size` lines, but no known checkpoint covers these lines: a
   * checkpoint was removed or not given. Otherwise returns null.
   */
  #lost({ run, size }: NonNullable<WitnessedClaim['receipt']>): string | null {
    const known = this.#known.get(run) ?? 0;
    if (known >= size) return null;
    const [newest, cause] = this.#witnessed.isGiven
      ? ['the newest checkpoint that it stores', 'the registry has lost a checkpoint']
      : ['the newest given checkpoint', 'a later checkpoint was removed or not given'];
    return `the registry signed a receipt for ${counted(size, 'line')} of the log run ${run}, but ${newest} covers only ${known}: ${cause}`;
  }
}
