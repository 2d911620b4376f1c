import { type Checkpoint, runKeyName, signCheckpoint } from '../../evidence/checkpoint.js';
import type { TreeGrowth } from '../../evidence/merkle-tree.js';
import { NoteSigner } from '../../evidence/signed-note.js';
import type { Chain } from '../chain.js';
import type { LineWriter } from '../line-writer/line-writer.js';
import { CheckpointQueue, type QueueStatus } from './checkpoint-queue.js';
import { type Received, type ReceiptStatus, type ReceiptOptions, Receipts } from './receipts.js';

// A checkpoint is a signed state of the log: the number of lines in a run (a hash chain), and the Merkle root of these
// lines. A receipt is the registry's signed confirmation that it stored a checkpoint.

/** A destination that stores checkpoints without checking them: a file, a syslog server or an HTTPS endpoint. */
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

/** How checkpoints are signed, and where they are stored. */
export interface CheckpointLogOptions {
  /** Signs each checkpoint with the long-lived key of this gateway. */
  readonly instance: NoteSigner;
  /** The destinations that store checkpoints, in addition to the registry. */
  readonly places: readonly CheckpointDestination[];
  /** Milliseconds between two periodic checkpoints. */
  readonly everyMilliseconds: number;
  /** Called with the destination and the reason when storing fails, and with null when it succeeds again. */
  readonly onProblem?: (place: string, problem: string | null) => void;
  /** Options for the receipts of the registry. Null or omitted: no receipts are requested. */
  readonly receipts?: ReceiptOptions | null;
}

/** The delivery state of all checkpoints of a process. */
export interface CheckpointStatus extends QueueStatus {
  /** The state of the registry's receipts; null if no receipts are requested. */
  readonly receipts: ReceiptStatus | null;
}

/** Signs checkpoints. Sends each checkpoint to all destinations and, if receipts are requested, to the registry. */
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
   * Combines the states of all destinations: their problems, and the total number of stored checkpoints. The age is the
   * largest of all destinations, so it shows the destination that is furthest behind. The state of the receipts is
   * separate.
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

  /** The newest checkpoint with a receipt; null before the first receipt. */
  get received(): Received | null {
    return this.#receipts?.received ?? null;
  }

  /**
   * Sets the function that is called when the registry rejects a run. The registry then rejects all further checkpoints
   * of this run too.
   */
  onRefused(callback: (run: string) => void): void {
    if (this.#receipts !== null) this.#receipts.onRefused = callback;
  }

  /**
   * Waits for the first receipt, but no longer than `registerMilliseconds`. Does not wait if no receipts are requested.
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

  /** Deletes the private key of a run that gets no further checkpoint, so that it cannot be read from memory later. */
  abandon(run: string): void {
    this.#signers.delete(run);
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
    // Deletes the private key of a run that has ended. Otherwise an attacker who later reads the memory of this process
    // could sign checkpoints of that run.
    if (occasion === 'end') this.#signers.delete(run);
    else this.#signers.set(run, signer);
    return signer;
  }
}

/** Signs each checkpoint after all lines that it covers are on disk. */
export class LineSigner {
  readonly #checkpoints: CheckpointLog | null;
  readonly #writer: Pick<LineWriter, 'sync'>;
  readonly #now: () => number;
  /** Whether a periodic checkpoint waits until its lines are on disk. */
  #isSigning = false;
  /** The newest checkpoint, which may still wait until its lines are on disk. */
  #newest: Pick<Checkpoint, 'run' | 'size' | 'at'> | null = null;
  /**
   * The newest run that may have lost lines, because a sync to disk failed. It gets no further checkpoint, because the
   * checkpoint would cover these lines.
   */
  #unsyncedRun: string | null = null;
  /**
   * The start checkpoints of runs whose first sync failed, oldest first: in a disk outage, each rotated file adds one.
   * If a run had no start checkpoint, an audit would take the run for a forgery.
   */
  readonly #unsignedStarts: Parameters<CheckpointLog['add']>[] = [];

  /** @param checkpoints null if no checkpoints are signed */
  constructor(checkpoints: CheckpointLog | null, writer: Pick<LineWriter, 'sync'>, now: () => number) {
    [this.#checkpoints, this.#writer, this.#now] = [checkpoints, writer, now];
  }

  /**
   * Signs a checkpoint of all lines of a chain, after these lines are on disk. If the signature came earlier, a crash
   * could lose signed lines. An audit could not distinguish such lost lines from lines that an attacker removed.
   */
  sign(
    { id: run, tree }: Pick<Chain, 'id' | 'tree'>,
    occasion: Checkpoint['occasion'],
    more: Pick<Checkpoint, 'previous' | 'next'> = {},
    onSigned?: () => void,
  ): void {
    if (this.#checkpoints === null || tree === null) return;
    const checkpoint = { run, size: tree.size, root: tree.root(), occasion, at: this.#now(), ...more };
    this.#newest = checkpoint;
    const growth = tree.takeGrowth();
    this.sync(run, () => {
      if (this.#unsyncedRun !== run) this.#checkpoints?.add(checkpoint, growth);
      else if (occasion === 'start') this.#unsignedStarts.push([checkpoint, growth]);
      onSigned?.();
    });
  }

  /**
   * Syncs all lines to disk. If this fails, no further checkpoint of the run is signed. Only its start checkpoint is
   * signed later, once the disk stores lines again.
   */
  sync(run: string, onDone?: () => void): void {
    this.#writer.sync((isSynced) => {
      if (!isSynced) {
        this.#unsyncedRun = run;
        this.#checkpoints?.abandon(run);
      } else {
        this.#signStarts();
      }
      onDone?.();
    });
  }

  #signStarts(): void {
    for (const [checkpoint, growth] of this.#unsignedStarts.splice(0)) {
      this.#checkpoints?.add(checkpoint, growth);
      this.#checkpoints?.abandon(checkpoint.run);
    }
  }

  /** Whether a new run must begin before further checkpoints can be signed. */
  mustEnd({ id }: Pick<Chain, 'id'>): boolean {
    return this.#checkpoints !== null && this.#unsyncedRun === id;
  }

  /**
   * Whether a line must be added before the next checkpoint, because the clock was set back. If a checkpoint covers the
   * same lines as the previous one but has an earlier time, the registry takes it for a replay and rejects it.
   */
  needsLine({ id, tree }: Pick<Chain, 'id' | 'tree'>): boolean {
    const newest = this.#newest;
    return newest?.run === id && newest.size === tree?.size && this.#now() < newest.at;
  }

  /** Signs a checkpoint, unless an earlier periodic checkpoint still waits for the disk, or `needsLine` is true. */
  signPeriodically(chain: Pick<Chain, 'id' | 'tree'>): void {
    if (this.#isSigning || this.needsLine(chain)) return;
    this.#isSigning = true;
    this.sign(chain, 'periodic', {}, () => (this.#isSigning = false));
  }
}
