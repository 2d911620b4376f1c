import { type Checkpoint, runKeyName, signCheckpoint } from '../../evidence/checkpoint.js';
import type { TreeGrowth } from '../../evidence/merkle-tree.js';
import { NoteSigner } from '../../evidence/signed-note.js';
import type { Chain } from '../chain.js';
import type { LineWriter } from '../line-writer/line-writer.js';
import { CheckpointQueue, type QueueStatus } from './checkpoint-queue.js';
import { type Received, type ReceiptStatus, type ReceiptOptions, Receipts } from './receipts.js';

/**
 * A destination that stores checkpoints (signed states of the log) without checking them: a file, a syslog server or an
 * HTTPS endpoint.
 */
export interface CheckpointDestination {
  /** A name for operators, for example a file path or a URL. Contains no secret. */
  readonly name: string;
  /**
   * Stores one line of JSON, `{"note":"…"}`. Never rejects.
   * @returns why storing failed, for operators; null if the line was stored
   */
  keep(line: string): Promise<string | null>;
  /** Closes the connection to the destination. */
  close(): Promise<void>;
}

/** How checkpoints (signed states of the log) are signed, and where they are stored. */
export interface CheckpointLogOptions {
  /** The signer of checkpoints with the long-lived key of this gateway. */
  readonly instance: NoteSigner;
  /** The destinations that store checkpoints, in addition to the registry. */
  readonly places: readonly CheckpointDestination[];
  /** Milliseconds between two periodic checkpoints. */
  readonly everyMilliseconds: number;
  /** Called with the destination and the reason when storing fails, and with null when it succeeds again. */
  readonly onProblem?: (place: string, problem: string | null) => void;
  /**
   * Options for receipts (the registry's signed confirmations that it stored a checkpoint). Null or omitted: no
   * receipts are requested.
   */
  readonly receipts?: ReceiptOptions | null;
}

/** The delivery state of all checkpoints (signed states of the log) of a process. */
export interface CheckpointStatus extends QueueStatus {
  /**
   * The state of the receipts (the registry's signed confirmations that it stored a checkpoint); null if no receipts
   * are requested.
   */
  readonly receipts: ReceiptStatus | null;
}

/**
 * Signs checkpoints of a log (its number of lines and their Merkle root). Sends them to all destinations and to the
 * registry.
 */
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

  /**
   * Combines the states of all destinations: their problems, the total number of stored checkpoints, and the greatest
   * age of a destination's newest stored checkpoint. The state of the registry's receipts is separate.
   */
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

  /**
   * The newest checkpoint with a receipt (the registry's signed confirmation that it stored the checkpoint); null
   * before the first receipt.
   */
  get received(): Received | null {
    return this.#receipts?.received ?? null;
  }

  /**
   * Sets the callback for a rejected run (hash chain). If the registry rejects a run, it rejects all further
   * checkpoints of the run too.
   */
  onRefused(callback: (run: string) => void): void {
    if (this.#receipts !== null) this.#receipts.onRefused = callback;
  }

  /**
   * Waits for the first receipt (the registry's signed confirmation that it stored a checkpoint), but no longer than
   * `registerMilliseconds`. Does not wait if no receipts are requested.
   */
  async register(): Promise<void> {
    await this.#receipts?.register();
  }

  /** Signs a checkpoint and queues it for all destinations. The lines that it covers must already be on disk. */
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
    // Deletes the private key of an ended run (hash chain). Otherwise an attacker who later reads this memory could
    // sign checkpoints of that run.
    if (occasion === 'end') this.#signers.delete(run);
    else this.#signers.set(run, signer);
    return signer;
  }
}

/** Signs checkpoints of a log (its number of lines and their Merkle root) once the lines are on disk. */
export class LineSigner {
  readonly #checkpoints: CheckpointLog | null;
  readonly #writer: Pick<LineWriter, 'sync'>;
  readonly #now: () => number;
  /** Whether a periodic checkpoint waits until its lines are on disk. */
  #isSigning = false;
  /**
   * The growth of the Merkle tree that no signed checkpoint covers, because a sync to disk failed. The next checkpoint
   * includes this growth.
   */
  #unsigned: TreeGrowth | null = null;

  /** @param checkpoints null if no checkpoints are signed */
  constructor(checkpoints: CheckpointLog | null, writer: Pick<LineWriter, 'sync'>, now: () => number) {
    [this.#checkpoints, this.#writer, this.#now] = [checkpoints, writer, now];
  }

  /**
   * Signs a checkpoint of all lines of a chain, but only once they are on disk. With an earlier signature, lines that a
   * crash loses could not be distinguished from lines that an attacker removed.
   */
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
