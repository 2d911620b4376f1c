import { consistencyProof } from '../../evidence/tree-proof.js';
import {
  forPurpose,
  InvalidNote,
  keyText,
  type NoteKey,
  parseKey,
  parseNote,
  receiptTimeOf,
} from '../../evidence/signed-note.js';
import { parseSubmission, readListHead, submissionText } from '../../evidence/submission.js';
import { CheckpointQueue, type Delivery, type QueueStatus, type SignedCheckpoint } from './checkpoint-queue.js';
import { UnansweredFiles } from './unanswered-files.js';

/** The reply of a witness to a submission. */
export interface WitnessReply {
  /** Status per c2sp.org/tlog-witness: 200, or the reason for no receipt (403, 404, 409, 422). */
  readonly status: number;
  /** Reason for no receipt, for an operator. */
  readonly problem?: string | undefined;
  /** The receipt line, with its line end. */
  readonly receipt?: string | undefined;
  /** The public key for its receipts. */
  readonly key?: string | undefined;
  /** The newest head of its list. */
  readonly head?: string | undefined;
}

/** A change of the key of receipts: the public keys before and after it. */
export interface KeyChange {
  readonly former: string;
  readonly current: string;
}

/** Options for receipts. */
export interface ReceiptOptions {
  /** Sends a submission to the witness. Rejects without a reply: the witness may still have stored the submission. */
  readonly submit: (submission: string) => Promise<WitnessReply>;
  /** Unanswered submissions are stored next to this file for the next process; null: they end with this process. */
  readonly besideFile: string | null;
  /** Milliseconds between two touches of these files, by which other processes see that this one lives. */
  readonly refreshMilliseconds?: number;
  /** Closes the channel to the witness. */
  readonly close: () => Promise<void>;
  /**
   * The key of the witness, which then never changes. Null: the key in its first reply, which arrives over an
   * authenticated channel, and each later key that is proved in the same way.
   */
  readonly key: NoteKey | null;
  /** Called after a later key of the witness was taken. */
  readonly onKeyChange?: (change: KeyChange) => void;
  /** Maximum wait for the first receipt before the first request, in milliseconds. */
  readonly registerMilliseconds: number;
  /** Whether the gateway stays not ready until the first receipt. */
  readonly isRequired: boolean;
  /** Called with the reason when receipts fail, and with null when they succeed again. */
  readonly onProblem?: (problem: string | null) => void;
}

/** State of the receipts, for an operator. */
export interface ReceiptStatus extends QueueStatus {
  /** Whether this process's first checkpoint has a receipt. */
  readonly isRegistered: boolean;
  readonly isRequired: boolean;
}

/** The newest checkpoint with a receipt: the note with all signatures, and the list head from the same reply. */
export interface Received {
  readonly note: string;
  readonly head: string | undefined;
}

const refusals: ReadonlySet<number> = new Set([404, 409, 422]);
/** Outcome of a submission; `isUnanswered` without any reply. */
type Submitted = (NonNullable<Delivery> & { readonly isUnanswered?: boolean }) | null;

/** A receipt by a key that does not count here. */
class WrongKey extends Error {}

/** Obtains receipts for the checkpoints of this process, and for unanswered checkpoints of earlier processes. */
export class Receipts {
  readonly #options: ReceiptOptions;
  readonly #files: UnansweredFiles | null;
  readonly #queue: CheckpointQueue;
  #key: NoteKey | null;
  /** The former keys. Taking one back would help the thief of a key that was replaced for that reason. */
  readonly #replacedKeys = new Set<string>();
  #received: Received | null = null;
  /** The number of checkpoints in the newest list head of the witness. */
  #listSize = 0;
  #register: () => void = () => undefined;
  readonly #registered = new Promise<void>((resolve) => (this.#register = resolve));
  #isRegistered = false;
  /** Called when the witness rejects a run. It accepts no further checkpoints of that run. */
  onRefused: (run: string) => void = () => undefined;

  /** @param everyMilliseconds between two checkpoints of a run */
  constructor(options: ReceiptOptions, everyMilliseconds: number) {
    [this.#options, this.#key] = [options, options.key];
    const { besideFile, refreshMilliseconds } = options;
    this.#files = besideFile === null ? null : new UnansweredFiles(besideFile, everyMilliseconds, refreshMilliseconds);
    this.#queue = new CheckpointQueue({
      everyMilliseconds,
      deliver: (checkpoint) => this.#deliver(checkpoint),
      onProblem: (problem) => options.onProblem?.(problem),
      onWaiting: (waiting) => {
        this.#files?.save(waiting.map(submissionOf));
      },
    });
  }

  get status(): ReceiptStatus {
    return { ...this.#queue.status, isRegistered: this.#isRegistered, isRequired: this.#options.isRequired };
  }

  /** The newest checkpoint with a receipt; null before the first one. */
  get received(): Received | null {
    return this.#received;
  }

  add(checkpoint: SignedCheckpoint): void {
    this.#queue.add(checkpoint);
  }

  /** Resolves when the first checkpoint has a receipt, or after `registerMilliseconds`. */
  async register(): Promise<void> {
    let late: NodeJS.Timeout | undefined;
    const timeout = new Promise<void>((resolve) => (late = setTimeout(resolve, this.#options.registerMilliseconds)));
    await Promise.race([this.#registered, timeout]);
    clearTimeout(late);
  }

  async close(timeoutMilliseconds: number): Promise<void> {
    await this.#queue.close(timeoutMilliseconds);
    await this.#files?.release();
    await this.#options.close();
  }

  async #deliver(checkpoint: SignedCheckpoint): Promise<Delivery> {
    // Submit earlier checkpoints first: the start of this process names the previous run, which the witness must know.
    await this.#submitFormer(checkpoint);
    const reply = await this.#submit(submissionOf(checkpoint));
    // If the start of a run is rejected, a new run would be rejected too: retry instead.
    const outcome = reply && { ...reply, isRefused: reply.isRefused === true && checkpoint.occasion !== 'start' };
    if (outcome === null) {
      this.#isRegistered = true;
      this.#register();
    } else if (outcome.isRefused) this.onRefused(checkpoint.run);
    return outcome;
  }

  async #submit(submission: string): Promise<Submitted> {
    let reply: WitnessReply;
    try {
      reply = await this.#options.submit(submission);
    } catch (error) {
      return { problem: error instanceof Error ? error.message : String(error), isUnanswered: true };
    }
    const { status, problem = 'no reason in the reply', receipt = '', head } = reply;
    if (status !== 200) return { problem: `${status}: ${problem}`, isRefused: refusals.has(status) };
    try {
      const note = parseSubmission(submission).note + receipt;
      const witness = this.#keyOf(note, reply);
      const size = head === undefined ? this.#listSize : readListHead(head, forPurpose(witness, 'note')).size;
      if (size < this.#listSize)
        return { problem: `the list of the registry has shrunk from ${this.#listSize} checkpoints to ${size}` };
      const former = this.#key;
      // Store the key only after the receipt is valid: the key of a forged reply would reject all later receipts.
      [this.#key, this.#received, this.#listSize] = [witness, { note, head }, size];
      if (former !== null && former !== witness) this.#replace(former, witness);
      return null;
    } catch (error) {
      if (error instanceof WrongKey) return { problem: error.message };
      if (!(error instanceof InvalidNote)) throw error;
      return { problem: `the receipt cannot be read: ${error.message}` };
    }
  }

  /**
   * The key that signed a receipt: the current one, or a later one unless the key is configured. The registry has its
   * former key no more, so the channel authenticates a later key as it did the first one.
   * @throws InvalidNote, WrongKey
   */
  #keyOf(note: string, { key = '', head }: WitnessReply): NoteKey {
    const current = this.#key;
    const signed = parseNote(note);
    if (current !== null && receiptTimeOf(signed, current) !== null) return current;
    if (this.#options.key !== null)
      throw new WrongKey(
        'the receipt is not signed by its key: if the registry has a new key, configure the key that checkpoints head ' +
          'prints as accessLog.checkpoints.witness.publicKey',
      );
    const given = parseKey(key);
    if (receiptTimeOf(signed, given) === null) throw new WrongKey('the receipt is not signed by its key');
    if (current === null) return given;
    if (this.#replacedKeys.has(keyText(given)))
      throw new WrongKey(
        'the receipt is signed by a key of the registry that was replaced before: if the registry is meant to have ' +
          'that key again, restart this gateway',
      );
    // Without the head, a list that has shrunk would pass with the new key.
    if (head === undefined)
      throw new WrongKey('the registry has another key for receipts, but sent no list signed with it');
    return given;
  }

  #replace(former: NoteKey, current: NoteKey): void {
    this.#replacedKeys.add(keyText(former));
    this.#options.onKeyChange?.({ former: keyText(former), current: keyText(current) });
  }

  /** Submits unanswered checkpoints of ended processes, and drops rejected ones. */
  async #submitFormer({ occasion, note }: SignedCheckpoint): Promise<void> {
    const [, previous = null] = /\nprevious (\S+) \d/.exec(occasion === 'start' ? note : '') ?? [];
    for (const { submissions, remove } of (await this.#files?.take(previous)) ?? []) {
      let isDone = true;
      for (const submission of submissions) {
        const outcome = await this.#submit(submission);
        if (outcome?.isUnanswered === true) return;
        isDone = outcome === null || outcome.isRefused === true;
        if (!isDone) break; // later ones extend this one
      }
      if (isDone) await remove();
    }
  }
}

function submissionOf({ growth, note }: SignedCheckpoint): string {
  return submissionText({ oldSize: growth.before.to, proof: consistencyProof(growth), note });
}
