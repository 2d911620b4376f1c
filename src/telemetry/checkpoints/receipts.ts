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

// A receipt is the registry's signed confirmation that it stored a checkpoint. The registry keeps a list of all stored
// checkpoints. The head of this list is its length and its Merkle root.

/** The registry's reply to a checkpoint: a receipt, or the reason why there is no receipt. */
export interface WitnessReply {
  /** Status as in c2sp.org/tlog-witness: 200, or the reason why there is no receipt (403, 404, 409 or 422). */
  readonly status: number;
  /** Why the registry signed no receipt, for operators. */
  readonly problem?: string | undefined;
  /** The receipt as a signature line, with its line end. */
  readonly receipt?: string | undefined;
  /** The registry's public key, which verifies the receipt. */
  readonly key?: string | undefined;
  /** The signed head of the registry's list of checkpoints. */
  readonly head?: string | undefined;
}

/** The registry's former and current public key for receipts, after a change. */
export interface KeyChange {
  readonly former: string;
  readonly current: string;
}

/** Options for receipts. */
export interface ReceiptOptions {
  /**
   * Sends a checkpoint to the registry. Rejects if there is no reply; even then, the registry could have stored the
   * checkpoint.
   */
  readonly submit: (submission: string) => Promise<WitnessReply>;
  /**
   * Checkpoints without a reply are stored in files beside this path, so that the next process can send them. Null:
   * these checkpoints are lost when this process ends.
   */
  readonly besideFile: string | null;
  /**
   * Interval in milliseconds at which this process touches its files beside `besideFile`. By the new modification time,
   * other processes know that this process is running.
   */
  readonly refreshMilliseconds?: number;
  /** Closes the connection to the registry. */
  readonly close: () => Promise<void>;
  /**
   * The configured public key that verifies receipts; no other key is accepted. Null if no key is configured. In that
   * case, the key in the registry's first reply is accepted, because the channel is authenticated. A later key is
   * accepted if it signed both a receipt and the head of the registry's list of checkpoints.
   */
  readonly key: NoteKey | null;
  /** Called after a new key of the registry was accepted. */
  readonly onKeyChange?: (change: KeyChange) => void;
  /** Maximum time to wait for the first receipt before the gateway serves requests, in milliseconds. */
  readonly registerMilliseconds: number;
  /** Whether the gateway becomes ready only after it has received the first receipt. */
  readonly isRequired: boolean;
  /** Called with the reason when a checkpoint gets no valid receipt, and with null when receipts are valid again. */
  readonly onProblem?: (problem: string | null) => void;
  /** Called once with a text for operators when the registry's list of checkpoints became shorter. */
  readonly onLoss?: (loss: string) => void;
}

/** The state of the receipts, for operators. */
export interface ReceiptStatus extends QueueStatus {
  /** Whether the registry has signed a receipt for a checkpoint of this process. */
  readonly isRegistered: boolean;
  readonly isRequired: boolean;
}

/**
 * The newest checkpoint with a receipt. `note` is the checkpoint with all its signatures. `head` is the signed head of
 * the registry's list of checkpoints; undefined if the registry sent none.
 */
export interface Received {
  readonly note: string;
  readonly head: string | undefined;
}

const refusals: ReadonlySet<number> = new Set([404, 409, 422]);
/**
 * Why a checkpoint got no valid receipt; null if the registry replied with a valid receipt. `isUnanswered` means that
 * there was no reply.
 */
type Submitted = (NonNullable<Delivery> & { readonly isUnanswered?: boolean }) | null;

/** Error for a receipt that no accepted key of the registry has signed. */
class WrongKey extends Error {}

/**
 * Obtains receipts. Sends the registry the checkpoints of this process, and the checkpoints to which ended processes
 * received no reply.
 */
export class Receipts {
  readonly #options: ReceiptOptions;
  readonly #files: UnansweredFiles | null;
  readonly #queue: CheckpointQueue;
  #key: NoteKey | null;
  /**
   * The registry's former keys. They are not accepted again: the registry could have replaced a key because it was
   * stolen.
   */
  readonly #replacedKeys = new Set<string>();
  #received: Received | null = null;
  /**
   * The length of the registry's list of checkpoints, as the registry signed it last. A shorter list later means that
   * checkpoints were removed.
   */
  #listSize = 0;
  /** A text for operators, once the registry's list became shorter; otherwise null. It stays until a restart. */
  #loss: string | null = null;
  #register: () => void = () => undefined;
  readonly #registered = new Promise<void>((resolve) => (this.#register = resolve));
  #isRegistered = false;
  /** Called when the registry rejects a run (a hash chain), and so all further checkpoints of this run. */
  onRefused: (run: string) => void = () => undefined;

  /** @param everyMilliseconds milliseconds between two periodic checkpoints */
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
    const { problem, ...status } = this.#queue.status;
    const { isRequired } = this.#options;
    return { ...status, problem: problem ?? this.#loss, isRegistered: this.#isRegistered, isRequired };
  }

  /** The newest checkpoint with a receipt; null before the first receipt. */
  get received(): Received | null {
    return this.#received;
  }

  add(checkpoint: SignedCheckpoint): void {
    this.#queue.add(checkpoint);
  }

  /** Waits until a checkpoint of this process has a receipt, but no longer than `registerMilliseconds`. */
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
    // Send the checkpoints of ended processes first. The start checkpoint of this process names the previous run in the
    // log, so the registry must already have the checkpoints of that run.
    await this.#submitFormer(checkpoint);
    const reply = await this.#submit(submissionOf(checkpoint));
    // If the registry rejects a run, the gateway begins a new run. This does not help if the registry rejects the start
    // checkpoint, because it would reject the start checkpoint of a new run too. So a start checkpoint is retried.
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
    const { status, problem = 'the registry gave no reason', receipt = '', head } = reply;
    if (status !== 200) return { problem: `${status}: ${problem}`, isRefused: refusals.has(status) };
    try {
      const note = parseSubmission(submission).note + receipt;
      const witness = this.#keyOf(note, reply);
      const size = head === undefined ? this.#listSize : readListHead(head, forPurpose(witness, 'note')).size;
      const former = this.#key;
      if (size < this.#listSize) {
        const loss = `the checkpoint list of the registry has shrunk from ${this.#listSize} to ${size} checkpoints: the database of the registry was restored, or somebody removed checkpoints. After a restore, restart this gateway`;
        if (former !== witness) return { problem: loss };
        this.#reportLoss(loss);
        // The receipt still protects the new lines. Keep the head of the longer list, so that the log proves the loss.
        this.#received = { note, head: this.#received?.head };
        return null;
      }
      // Store the key only after the receipt was verified. Otherwise a forged reply could set a key that rejects all
      // later receipts.
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
   * Returns the key that signed a receipt. This is the current key, or a new key of the registry if no key is
   * configured. The registry has a new key if it lost the previous key. A new key is accepted like the first key,
   * because the channel is authenticated.
   * @throws WrongKey for a key that is not accepted
   * @throws InvalidNote for a malformed note or key
   */
  #keyOf(note: string, { key = '', head }: WitnessReply): NoteKey {
    const current = this.#key;
    const signed = parseNote(note);
    if (current !== null && receiptTimeOf(signed, current) !== null) return current;
    if (this.#options.key !== null)
      throw new WrongKey(
        'the receipt is not signed with accessLog.checkpoints.witness.publicKey: if the registry has a new key, set that option to the key that "merchant-gateway checkpoints head" prints',
      );
    const given = parseKey(key);
    if (receiptTimeOf(signed, given) === null)
      throw new WrongKey('the receipt is not signed with the key that the registry sent in the same reply');
    if (current === null) return given;
    if (this.#replacedKeys.has(keyText(given)))
      throw new WrongKey(
        'the receipt is signed by a former key of the registry; if the registry uses that key again on purpose, restart this gateway',
      );
    // A new key must also sign the head of the registry's list of checkpoints. Otherwise a key change could hide that
    // the list has become shorter.
    if (head === undefined)
      throw new WrongKey('the registry has a new key for receipts, but sent no checkpoint list signed with that key');
    return given;
  }

  #reportLoss(loss: string): void {
    if (this.#loss === null) this.#options.onLoss?.(loss);
    this.#loss ??= loss;
  }

  #replace(former: NoteKey, current: NoteKey): void {
    this.#replacedKeys.add(keyText(former));
    this.#options.onKeyChange?.({ former: keyText(former), current: keyText(current) });
  }

  /**
   * Sends the checkpoints to which ended processes received no reply. Deletes the checkpoints of a process once the
   * registry has stored or rejected all of them.
   */
  async #submitFormer({ occasion, note }: SignedCheckpoint): Promise<void> {
    const [, previous = null] = /\nprevious (\S+) \d/.exec(occasion === 'start' ? note : '') ?? [];
    for (const { submissions, remove } of (await this.#files?.take(previous)) ?? []) {
      let isDone = true;
      for (const submission of submissions) {
        const outcome = await this.#submit(submission);
        if (outcome?.isUnanswered === true) return;
        isDone = outcome === null || outcome.isRefused === true;
        if (!isDone) break; // the registry accepts later checkpoints only after this one
      }
      if (isDone) await remove();
    }
  }
}

function submissionOf({ growth, note }: SignedCheckpoint): string {
  return submissionText({ oldSize: growth.before.to, proof: consistencyProof(growth), note });
}
