import { hash } from 'node:crypto';
import { InvalidNote, isSignedBy, type NoteKey, type NoteSigner, parseNote } from './signed-note.js';

/** An audit event with its position in the hash chain. */
export interface ChainedEvent {
  /** Number of the event in the chain, from 1 without gaps. */
  readonly position: number;
  /** All columns of the event, as JSON (`eventContent`); null if the event is missing. */
  readonly content: string | null;
  /** SHA-256 over the hash of the previous event and over the content, in hex. */
  readonly hash: string;
}

/** The head of the chain: the position and the hash of its newest event. */
export interface ChainHead {
  readonly position: number;
  readonly hash: string;
}

/** The head of an empty chain. */
export const chainStart: ChainHead = { position: 0, hash: '0'.repeat(64) };

/** Returns the hash of an event. It covers the previous hash, and so all events before this one. */
export function eventHash(previous: string, content: string): string {
  return hash('sha256', `${previous}\n${content}`, 'hex');
}

/**
 * What a signed note states: the head of the chain (`events`), or the last event that retention deleted
 * (`events/pruned`). Each of these two kinds has its own origin (first line). Otherwise an old signed head could pass
 * as evidence that retention deleted all events up to that head.
 */
export type ChainNote = 'events' | 'events/pruned';

/** Signs a position and hash of the chain as a note whose first line is `<name>/events` or `<name>/events/pruned`. */
export function signChainHead(head: ChainHead, signer: NoteSigner, about: ChainNote = 'events'): string {
  const text = headText(signer.key.name, head, about);
  return `${text}\n${signer.lineFor(text)}`;
}

function headText(name: string, { position, hash }: ChainHead, about: ChainNote): string {
  return `${name}/${about}\n${position}\n${Buffer.from(hash, 'hex').toString('base64')}\n`;
}

/**
 * What a note proves about a position and hash of the chain.
 * - `signed`: a given key signed them.
 * - `unknown-key`: the note states them, but names a key that was not given. The note then proves nothing.
 * - `forged`: the note is malformed, states something else, or has an invalid signature of a given key.
 */
export type HeadSignature = 'signed' | 'unknown-key' | 'forged';

/**
 * Judges a note about a position and hash of the chain.
 * @param keys the registry's public keys with the purpose `note`: the current key and keys that were replaced
 */
export function headSignatureOf(
  note: string,
  head: ChainHead,
  keys: readonly NoteKey[],
  about: ChainNote = 'events',
): HeadSignature {
  try {
    const signed = parseNote(note);
    // The id alone selects the key. Otherwise a forger could change only the name, so that the key seems unknown.
    const key = keys.find(({ id }) => signed.signatures.some((signature) => signature.id.equals(id)));
    const name = key?.name ?? signed.signatures[0]?.name ?? '';
    if (signed.text !== headText(name, head, about)) return 'forged';
    if (key === undefined) return 'unknown-key';
    return isSignedBy(signed, key) ? 'signed' : 'forged';
  } catch (error) {
    if (error instanceof InvalidNote) return 'forged';
    throw error;
  }
}

/**
 * What is wrong with the audit trail, the chain of all events.
 * - `changed`: the content or the hash of the event was changed after it was stored.
 * - `removed`: an event is missing.
 * - `reordered`: an event was moved to another position.
 * - `added`: an event is stored, but is not part of the hash chain.
 * - `added-removed`: an `added` event is missing after somebody had examined it.
 * - `forged-signature`: a stored signature is invalid, or is for another position of the chain.
 * - `unsigned-deletion`: no signature confirms that retention deleted the events up to this one.
 * - `rolled-back`: an earlier checkpoint names an event that is no longer in the trail.
 */
export type ChainFault =
  | 'changed'
  | 'removed'
  | 'reordered'
  | 'added'
  | 'added-removed'
  | 'rolled-back'
  | 'forged-signature'
  | 'unsigned-deletion';

/** A fault of the audit trail: the event's position in the chain, and its sequence number (null if unknown). */
export interface ChainFinding {
  readonly fault: ChainFault;
  readonly position: number;
  readonly seq: number | null;
}

/** Options of a verification. */
export interface ChainCheckOptions {
  /** The head of the chain before the first event to verify: `chainStart`, or the last event that retention deleted. */
  readonly from: ChainHead;
  /** Positions and hashes of the chain that were saved earlier. The chain must still contain them. */
  readonly checkpoints: readonly ChainHead[];
}

const mostFindings = 1000;

/**
 * Verifies a chain of events, one by one in the order of their positions. After a fault, continues with the stored
 * hash, so that each fault is reported once.
 */
export class ChainCheck {
  readonly #checkpoints: Map<number, string>;
  readonly findings: ChainFinding[] = [];
  #head: ChainHead;
  #seq = 0;
  /** The number of faults. `findings` contains only the first 1000 faults. A gap counts as at most 1000 faults. */
  faults = 0;

  constructor({ from, checkpoints }: ChainCheckOptions) {
    this.#head = from;
    this.#checkpoints = new Map(checkpoints.map(({ position, hash }) => [position, hash]));
    this.continueAfter(from);
  }

  /** Continues after the last event that retention has deleted since the verification began. Keeps all findings. */
  continueAfter(pruned: ChainHead): void {
    this.#head = pruned;
    for (const [position] of this.#checkpoints) if (position < pruned.position) this.#checkpoints.delete(position);
    this.#compareWithCheckpoint(null);
  }

  /** The position and hash of the last event that was added; `from` if no event was added yet. */
  get head(): ChainHead {
    return this.#head;
  }

  /** Checks the next event. */
  add({ position, content, hash }: ChainedEvent): void {
    const { position: last, hash: previous } = this.#head;
    for (let missing = last + 1; missing < position && missing <= last + mostFindings; missing += 1)
      this.#report('removed', missing, null);
    const seq = content === null ? null : seqIn(content);
    if (content === null) this.#report('removed', position, null);
    else if (seq === null || eventHash(previous, content) !== hash) {
      // After a gap, the previous hash is unknown, so a different hash does not show that this event was changed.
      if (position === last + 1) this.#report('changed', position, seq);
    } else if (seq <= this.#seq) this.#report('reordered', position, seq);
    this.#head = { position, hash };
    this.#seq = Math.max(this.#seq, seq ?? 0);
    this.#compareWithCheckpoint(seq);
  }

  /**
   * Compares the number of events that are stored outside the hash chain with the number that somebody has examined. If
   * more are stored, reports them as one finding, but counts each as a fault. If fewer are stored, reports a removal.
   * @param seq the sequence number of the first event outside the chain; null if there is none
   * @param count how many events are stored outside the chain
   * @param examined how many events outside the chain somebody has examined
   */
  addUnchained(seq: number | null, count: number, examined: number): void {
    if (count < examined) this.#report('added-removed', this.#head.position, null);
    if (count <= examined) return;
    this.#report('added', this.#head.position, seq);
    this.faults += count - 1;
  }

  /** Reports that the signature at a position is invalid or is for another position. */
  reportForgedSignature(position: number): void {
    this.#report('forged-signature', position, null);
  }

  /** Reports that no signature confirms the deletion of the events before the first stored event. */
  reportUnsignedDeletion(): void {
    this.#report('unsigned-deletion', this.#head.position, null);
  }

  /**
   * Compares the verified chain with the stored head. Also reports each checkpoint whose position is after the last
   * event. Call this after the last event was added.
   */
  end(stored: ChainHead): void {
    for (let missing = this.#head.position + 1; missing <= stored.position && this.faults < mostFindings; missing += 1)
      this.#report('removed', missing, null);
    if (this.#head.position === stored.position && this.#head.hash !== stored.hash)
      this.#report('changed', stored.position, null);
    for (const [position] of this.#checkpoints) this.#report('rolled-back', position, null);
  }

  #compareWithCheckpoint(seq: number | null): void {
    const { position, hash } = this.#head;
    const expected = this.#checkpoints.get(position);
    if (expected !== undefined && expected !== hash) this.#report('rolled-back', position, seq);
    this.#checkpoints.delete(position);
  }

  #report(fault: ChainFault, position: number, seq: number | null): void {
    this.faults += 1;
    if (this.findings.length < mostFindings) this.findings.push({ fault, position, seq });
  }
}

function seqIn(content: string): number | null {
  try {
    const parsed = JSON.parse(content) as { readonly seq?: unknown };
    return typeof parsed.seq === 'number' ? parsed.seq : null;
  } catch {
    return null;
  }
}
