import { type Checkpoint, runKeyName, signCheckpoint } from '../../evidence/checkpoint.js';
import type { TreeGrowth } from '../../evidence/merkle-tree.js';
import { NoteSigner } from '../../evidence/signed-note.js';
import type { Chain } from '../chain.js';
import type { LineWriter } from '../line-writer/line-writer.js';
import { CheckpointQueue, type QueueStatus } from './checkpoint-queue.js';
import { type Received, type ReceiptStatus, type ReceiptOptions, Receipts } from './receipts.js';

/** A destination that stores checkpoints without checking them: a file, a syslog server or an HTTPS endpoint. */
export interface CheckpointDestination {
  /** Name for an operator, e.g. a file path or a URL. Contains no secret. */
  readonly name: string;
  /**
   * Stores one line of JSON, `{"note":"…"}`. Never rejects.
   * @returns the reason of a failure, for an operator; null if stored
   */
  keep(line: string): Promise<string | null>;
  /** Closes the connection. */
  close(): Promise<void>;
}

/** How checkpoints are signed and where they are stored. */
export interface CheckpointLogOptions {
  /** Signs with the instance key. */
  readonly instance: NoteSigner;
  /** The destinations in addition to the witness. */
  readonly places: readonly CheckpointDestination[];
  /** Milliseconds between two checkpoints of a run. */
  readonly everyMilliseconds: number;
  /** Called with the destination and the reason when storing fails, and with null when it succeeds again. */
  readonly onProblem?: (place: string, problem: string | null) => void;
  /** The witness that signs receipts; null or omitted: no witness. */
  readonly receipts?: ReceiptOptions | null;
}

/** State of the checkpoints of a process. */
export interface CheckpointStatus extends QueueStatus {
  /** State of the receipts; null without a witness. */
  readonly receipts: ReceiptStatus | null;
}

/** Signs the checkpoints of a log and sends them to all destinations. */
export class CheckpointLog {
  readonly everyMilliseconds: number;
  readonly #instance: NoteSigner;
  readonly #places: readonly (Pick<CheckpointDestination, 'name' | 'close'> & { readonly queue: CheckpointQueue })[];
  readonly #receipts: Receipts | null;
  readonly #signers = new Map<string, NoteSigner>();

  constructor({ instance, places, everyMilliseconds, onProblem, receipts = null }: CheckpointLogOptions) {
    [this.everyMilliseconds, this.#instance] = [everyMilliseconds, instance];
    this.#places = places.map((place) => ({
      name: place.name,
      close: () => place.close(),
      queue: new CheckpointQueue({
        everyMilliseconds,
        deliver: async ({ note }) => {
          const problem = await place.keep(JSON.stringify({ note }));
          return problem === null ? null : { problem };
        },
        onProblem: (problem) => onProblem?.(place.name, problem),
      }),
    }));
    this.#receipts = receipts && new Receipts(receipts, everyMilliseconds);
  }

  /** Totals over all destinations: the problems with their names, the stored checkpoints, and the greatest age. */
  get status(): CheckpointStatus {
    const places = this.#places.map(({ name, queue }) => ({ name, ...queue.status }));
    const problems = places.flatMap(({ name, problem }) => (problem === null ? [] : [`${name}: ${problem}`]));
    return {
      problem: problems.length === 0 ? null : problems.join('; '),
      kept: places.reduce((sum, { kept }) => sum + kept, 0),
      ageMilliseconds: Math.max(0, ...places.map(({ ageMilliseconds }) => ageMilliseconds)),
      receipts: this.#receipts?.status ?? null,
    };
  }

  /** The newest checkpoint with its receipt; null without a receipt. */
  get received(): Received | null {
    return this.#receipts?.received ?? null;
  }

  /** Sets the callback for a run that the witness rejects. It accepts no further checkpoints of that run. */
  onRefused(callback: (run: string) => void): void {
    if (this.#receipts !== null) this.#receipts.onRefused = callback;
  }

  /** Resolves when the first checkpoint has a receipt, after a timeout, or at once without a witness. */
  async register(): Promise<void> {
    await this.#receipts?.register();
  }

  /** Signs a checkpoint and queues it for all destinations. Its lines must already be on the disk. */
  add(unsigned: Omit<Checkpoint, 'name'>, growth: TreeGrowth): void {
    const checkpoint = { ...unsigned, name: this.#instance.key.name };
    const { run, size, occasion } = checkpoint;
    const note = signCheckpoint(checkpoint, this.#instance, this.#signerOf(checkpoint));
    const signed = { run, size, occasion, note, signedAt: performance.now(), growth };
    for (const { queue } of this.#places) queue.add(signed);
    this.#receipts?.add(signed);
  }

  /** Delivers queued checkpoints until the timeout, then closes the destinations. */
  async close(timeoutMilliseconds: number): Promise<void> {
    const places = this.#places.map(async ({ queue, close }) => {
      await queue.close(timeoutMilliseconds);
      await close();
    });
    await Promise.all([...places, this.#receipts?.close(timeoutMilliseconds)]);
  }

  #signerOf({ name, run, occasion }: Checkpoint): NoteSigner {
    const signer = this.#signers.get(run) ?? NoteSigner.inMemory(runKeyName(name, run));
    // Drop the key of an ended run: a later reader of this memory cannot sign for that run.
    if (occasion === 'end') this.#signers.delete(run);
    else this.#signers.set(run, signer);
    return signer;
  }
}

/** Signs the lines of a log after they are on the disk. */
export class LineSigner {
  readonly #checkpoints: CheckpointLog | null;
  readonly #writer: Pick<LineWriter, 'sync'>;
  readonly #now: () => number;
  /** Whether a periodic checkpoint waits for its lines to reach the disk. */
  #isSigning = false;
  /** The unsigned growth of the tree after a failed sync; the next checkpoint includes it. */
  #unsigned: TreeGrowth | null = null;

  /** @param checkpoints null: signing is off */
  constructor(checkpoints: CheckpointLog | null, writer: Pick<LineWriter, 'sync'>, now: () => number) {
    [this.#checkpoints, this.#writer, this.#now] = [checkpoints, writer, now];
  }

  /** Signs all lines of a chain once they are on the disk: otherwise a crash would look like a truncated log. */
  sign(
    { id: run, tree }: Pick<Chain, 'id' | 'tree'>,
    occasion: Checkpoint['occasion'],
    more: Pick<Checkpoint, 'previous' | 'next'> = {},
    onSigned?: () => void,
  ): void {
    if (this.#checkpoints === null || tree === null) return;
    const checkpoint = { run, size: tree.size, root: tree.root(), occasion, at: this.#now(), ...more };
    const growth = tree.takeGrowth();
    this.#writer.sync((isSynced) => {
      const before = this.#unsigned?.added.to === growth.before.to ? this.#unsigned : null;
      const all = before === null ? growth : { before: before.before, added: before.added.with(growth.added) };
      this.#unsigned = isSynced ? null : all;
      if (isSynced) this.#checkpoints?.add(checkpoint, all);
      onSigned?.();
    });
  }

  signPeriodically(chain: Pick<Chain, 'id' | 'tree'>): void {
    if (this.#isSigning) return;
    this.#isSigning = true;
    this.sign(chain, 'periodic', {}, () => (this.#isSigning = false));
  }
}
