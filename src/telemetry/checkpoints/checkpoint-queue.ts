import type { Checkpoint } from '../../evidence/checkpoint.js';
import type { TreeGrowth } from '../../evidence/merkle-tree.js';

// A checkpoint is a signed state of the log: the number of lines in a run (a hash chain), and the Merkle root of these
// lines.

/** A checkpoint in the queue of a destination. */
export interface SignedCheckpoint extends Pick<Checkpoint, 'run' | 'size' | 'occasion'> {
  readonly note: string;
  /** When the checkpoint was signed, by the monotonic clock, in milliseconds. */
  readonly signedAt: number;
  /** How the Merkle tree has grown since the previous checkpoint; needed for the consistency proof. */
  readonly growth: TreeGrowth;
}

/**
 * Why a checkpoint was not stored; null if the destination stored it. `isRefused` means that the registry accepts no
 * more checkpoints of this run. The queue then drops all checkpoints of the run, and does not retry.
 */
export type Delivery = { readonly problem: string; readonly isRefused?: boolean } | null;

/** The delivery state of the checkpoints for one destination. */
export interface QueueStatus {
  /** Why delivery fails at present, for operators; null if it does not fail. */
  readonly problem: string | null;
  /** How many checkpoints the destination (file, server or registry) has stored. */
  readonly kept: number;
  /**
   * Milliseconds since the newest stored checkpoint was signed, or since the queue was created if no checkpoint is
   * stored yet.
   */
  readonly ageMilliseconds: number;
}

/** A destination of checkpoints, as its queue uses it. */
export interface QueueDestination {
  /** Milliseconds between two periodic checkpoints. */
  readonly everyMilliseconds: number;
  /** Sends one checkpoint. Never rejects. */
  readonly deliver: (checkpoint: SignedCheckpoint) => Promise<Delivery>;
  /** Called with the reason when delivery fails, and with null when it succeeds again. */
  readonly onProblem: (problem: string | null) => void;
  /** Called with all undelivered checkpoints, oldest first, whenever the queue changes. */
  readonly onWaiting?: (waiting: readonly SignedCheckpoint[]) => void;
}

const retryMilliseconds = 1_000;
/**
 * A destination can hang without an error. So it counts as failing once its newest stored checkpoint is older than this
 * number of checkpoint intervals plus `lateMilliseconds`.
 */
const lateIntervals = 3;
const lateMilliseconds = 5_000;
/**
 * Maximum number of queued checkpoints. The queue grows in an outage: each rotated file adds a start and an end
 * checkpoint, which newer checkpoints do not replace.
 */
const mostWaiting = 1_000;

/**
 * The queue of checkpoints for one destination. Sends the oldest checkpoint unchanged until it is stored. A new
 * checkpoint replaces a waiting periodic checkpoint of the same run, but never the oldest checkpoint of the queue.
 */
export class CheckpointQueue {
  readonly #place: QueueDestination;
  /** The undelivered checkpoints, oldest first. The first one is being delivered. */
  #waiting: SignedCheckpoint[] = [];
  #sending: Promise<void> | null = null;
  #problem: string | null = null;
  #kept = 0;
  #newestAt = performance.now();
  #isClosing = false;
  /** Whether `close` has finished waiting. If so, no further checkpoint is sent. */
  #isClosed = false;

  constructor(place: QueueDestination) {
    this.#place = place;
  }

  get status(): QueueStatus {
    const ageMilliseconds = performance.now() - this.#newestAt;
    const isLate = ageMilliseconds > lateIntervals * this.#place.everyMilliseconds + lateMilliseconds;
    const late = isLate ? `no checkpoint of the last ${Math.round(ageMilliseconds / 1000)} s has been accepted` : null;
    return { problem: this.#problem ?? late, kept: this.#kept, ageMilliseconds };
  }

  add(checkpoint: SignedCheckpoint): void {
    const isCovered = ({ run, occasion }: SignedCheckpoint): boolean =>
      run === checkpoint.run && occasion === 'periodic';
    const covered = this.#waiting.findIndex((waiting, index) => index > 0 && isCovered(waiting));
    this.#waiting.push(checkpoint);
    if (covered !== -1) this.#leaveOut(covered);
    else if (this.#waiting.length > mostWaiting) this.#leaveOut(1);
    this.#place.onWaiting?.(this.#waiting);
    this.#sending ??= this.#send();
  }

  /** Delivers queued checkpoints until the timeout. */
  async close(timeoutMilliseconds: number): Promise<void> {
    this.#isClosing = true;
    let late: NodeJS.Timeout | undefined;
    const timeout = new Promise<void>((resolve) => (late = setTimeout(resolve, timeoutMilliseconds)));
    await Promise.race([this.#sending, timeout]);
    clearTimeout(late);
    this.#isClosed = true;
  }

  /** Removes a checkpoint from the queue. Adds its tree growth to the next checkpoint of the same run. */
  #leaveOut(index: number): void {
    const [left] = this.#waiting.splice(index, 1);
    const next = this.#waiting.findIndex(({ run }, at) => at >= index && run === left?.run);
    const follower = this.#waiting[next];
    if (left === undefined || follower === undefined) return;
    const growth = { before: left.growth.before, added: left.growth.added.with(follower.growth.added) };
    this.#waiting[next] = { ...follower, growth };
  }

  async #send(): Promise<void> {
    for (let next = this.#waiting[0]; next !== undefined && !this.#isClosed; next = this.#waiting[0]) {
      const failure = await this.#place.deliver(next);
      this.#report(failure?.problem ?? null);
      if (failure === null) {
        this.#kept += 1;
        this.#newestAt = Math.max(this.#newestAt, next.signedAt);
        this.#waiting.shift();
        this.#place.onWaiting?.(this.#waiting);
      } else if (failure.isRefused === true) {
        const { run } = next;
        this.#waiting = this.#waiting.filter((waiting) => waiting.run !== run);
        this.#place.onWaiting?.(this.#waiting);
      } else await this.#pause();
    }
    this.#sending = null;
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, retryMilliseconds);
      if (!this.#isClosing) timer.unref();
    });
  }

  #report(problem: string | null): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#place.onProblem(problem);
  }
}
