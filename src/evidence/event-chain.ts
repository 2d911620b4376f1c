import { hash } from 'node:crypto';
import { InvalidNote, isSignedBy, type NoteKey, type NoteSigner, parseNote } from './signed-note.js';

/** An event with its place in the chain. */
export interface ChainedEvent {
  /** Number of the event in the chain, from 1 without gaps. */
  readonly position: number;
  /** All columns of the event, as JSON (`eventContent`); null if the event is missing. */
  readonly content: string | null;
  /** SHA-256 over the hash of the event before and the content, in hex. */
  readonly hash: string;
}

/** The end of the chain: the position and the hash of its newest event. */
export interface ChainHead {
  readonly position: number;
  readonly hash: string;
}

/** The hash before the first event of a chain. */
export const chainStart: ChainHead = { position: 0, hash: '0'.repeat(64) };

const hashForm = /^[0-9a-f]{64}$/;

/** Returns the hash of an event, which also covers all events before it. */
export function eventHash(previous: string, content: string): string {
  return hash('sha256', `${previous}\n${content}`, 'hex');
}

/**
 * What a signed note is about: the end of the chain, or the end of a range that retention deleted. Each has its own
 * origin. Otherwise the signed end of a chain would also prove that retention deleted the events before it.
 */
export type ChainNote = 'events' | 'events/pruned';

/** Signs an end of a chain as a note with the origin `<name>/events`, or `<name>/events/pruned`. */
export function signChainHead({ position, hash }: ChainHead, signer: NoteSigner, about: ChainNote = 'events'): string {
  const text = `${signer.key.name}/${about}\n${position}\n${Buffer.from(hash, 'hex').toString('base64')}\n`;
  return `${text}\n${signer.lineFor(text)}`;
}

/** Parses a signed end of a chain, and verifies its signature. @throws InvalidNote */
export function readChainHead(note: string, key: NoteKey, about: ChainNote = 'events'): ChainHead {
  const signed = parseNote(note);
  if (!isSignedBy(signed, key)) throw new InvalidNote('the given key has not signed it');
  const [origin, size = '', root = '', ...more] = signed.text.slice(0, -1).split('\n');
  const hash = Buffer.from(root, 'base64').toString('hex');
  const isWhole = more.length === 0 && /^(?:0|[1-9]\d{0,14})$/.test(size) && hashForm.test(hash);
  if (origin !== `${key.name}/${about}` || !isWhole)
    throw new InvalidNote('expected the signed end of a chain of events');
  return { position: Number(size), hash };
}

/**
 * What is wrong with a trail:
 * - `changed`: the content, or the hash, of the event is not what was stored;
 * - `removed`: an event is missing;
 * - `reordered`: an event has another place than at first;
 * - `added`: an event is not in the chain, although the events before it are;
 * - `forged-signature`: a stored signature is invalid, or was made for another end of the chain;
 * - `unsigned-deletion`: no signature proves that retention deleted the events up to this one;
 * - `rolled-back`: a checkpoint names an event that the trail does not have.
 */
export type ChainFault =
  'changed' | 'removed' | 'reordered' | 'added' | 'rolled-back' | 'forged-signature' | 'unsigned-deletion';

/** A fault of a trail, and the position and number (`seq`) of the event; `seq` is null if unknown. */
export interface ChainFinding {
  readonly fault: ChainFault;
  readonly position: number;
  readonly seq: number | null;
}

/** Options of a verification. */
export interface ChainCheckOptions {
  /** The chain before the first event that is checked: the start, or the end of what was pruned. */
  readonly from: ChainHead;
  /** Earlier ends of the chain that must be part of it. */
  readonly checkpoints: readonly ChainHead[];
}

const mostFindings = 1000;

/**
 * Verifies a chain of events, event by event in the order of the positions. After a fault it goes on with the stored
 * hash, so that each fault is reported once.
 */
export class ChainCheck {
  readonly #checkpoints: Map<number, string>;
  readonly findings: ChainFinding[] = [];
  #head: ChainHead;
  #seq = 0;
  /** Number of faults, which may exceed the number of findings. */
  faults = 0;

  constructor({ from, checkpoints }: ChainCheckOptions) {
    this.#head = from;
    this.#checkpoints = new Map(checkpoints.map(({ position, hash }) => [position, hash]));
    for (const [position] of this.#checkpoints) if (position < from.position) this.#checkpoints.delete(position);
    this.#compareWithCheckpoint(null);
  }

  /** The end of the chain so far. */
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
      // Behind a gap the hash before this event is unknown.
      if (position === last + 1) this.#report('changed', position, seq);
    } else if (seq <= this.#seq) this.#report('reordered', position, seq);
    this.#head = { position, hash };
    this.#seq = Math.max(this.#seq, seq ?? 0);
    this.#compareWithCheckpoint(seq);
  }

  /** Reports events that are not in the chain, by the first of them. */
  addUnchained(seq: number, count: number): void {
    this.#report('added', this.#head.position, seq);
    this.faults += count - 1;
  }

  /** Reports that the signature at a position is missing or covers something else. */
  reportForgedSignature(position: number): void {
    this.#report('forged-signature', position, null);
  }

  /** Reports that nothing proves that retention deleted the events before the first one. */
  reportUnsignedDeletion(): void {
    this.#report('unsigned-deletion', this.#head.position, null);
  }

  /** Must be called after the last event. Compares with the stored end, and with checkpoints that are not reached. */
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
