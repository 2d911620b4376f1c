import type { Checkpoint, ReadCheckpoint } from '../evidence/checkpoint.js';
import { MerkleTree } from '../evidence/merkle-tree.js';
import type { ChainCheck } from './chain-check.js';
import { type Finding, type Position, rangeText } from './finding.js';

/** A checkpoint, and its position in the input. */
export interface GivenCheckpoint extends ReadCheckpoint {
  readonly place: Position;
  /** The checkpoint as a signed note (a text with its signatures). */
  readonly note: string;
}

/** How a line differs from a signed checkpoint. */
export type Mismatch = Pick<Finding, 'kind' | 'message'>;

/**
 * The members of a checkpoint that stay in memory. They must be small, because each process signs a checkpoint every
 * 10 seconds by default: 8,640 a day.
 */
interface KeptCheckpoint extends Pick<GivenCheckpoint, 'size' | 'at' | 'place'> {
  /**
   * The Merkle root in hex. A Buffer of 32 bytes would keep a whole slab (8 KiB) of Node's buffer pool in memory.
   */
  readonly root: string;
  /**
   * When the registry received the checkpoint, in milliseconds since 1970. A receipt that the registry signed states
   * this time; null without a receipt.
   */
  receivedAt: number | null;
}

/**
 * Compares the lines of one run, which are the lines of one gateway process in one file, with the signed checkpoints of
 * that run.
 */
export class SignedRun {
  /** The checkpoints, by the number of the last line that they cover. */
  readonly checkpoints = new Map<number, KeptCheckpoint>();
  newest: GivenCheckpoint;
  /**
   * The number and hash of the last line of this run, as the next process found that line in the log. The next process
   * states both in its signed start checkpoint (`by`). Null if no such checkpoint is known, or if the run went on after
   * it.
   */
  found: { readonly size: number; readonly hash: Buffer; readonly by: GivenCheckpoint } | null = null;
  /** The newest signed checkpoint whose Merkle root matches the lines; null before the first match. */
  proved: KeptCheckpoint | null = null;
  /**
   * The newest checkpoint that matches the lines and has a receipt: the registry's signature that it stored the
   * checkpoint. Null before the first such checkpoint.
   */
  witnessed: KeptCheckpoint | null = null;
  /** The number of the first line that was compared; 0 if no line was compared yet. */
  first = 0;
  /** Whether a line differs from a checkpoint. */
  isUnlike = false;
  #tree: MerkleTree | null = new MerkleTree();

  constructor(first: GivenCheckpoint) {
    this.newest = first;
  }

  /** The minimum number of lines that were written in this run, and the signed checkpoint that states this number. */
  get required(): { readonly size: number; readonly by: GivenCheckpoint } {
    const { size } = this.newest;
    return this.found !== null && this.found.size > size ? this.found : { size, by: this.newest };
  }

  /**
   * The number of the last line of the run, and the checkpoint that states it: the end checkpoint of the run, or the
   * start checkpoint of the next process. Null without such a checkpoint.
   */
  get last(): { readonly size: number; readonly by: GivenCheckpoint } | null {
    if (this.newest.occasion === 'end') return { size: this.newest.size, by: this.newest };
    return this.found;
  }

  /**
   * Whether this run signed further lines after another process started on its file. If so, the start checkpoint of the
   * other process does not state the end of this run. Only the process of this run has the run key, so its signature
   * proves that it still ran. If the disk was restored from a backup, the other process also finds fewer lines than
   * this run signed. But this run signed all its lines before the other process started, so the result is false.
   * @param size the number of the last line of this run, according to that start checkpoint
   */
  wentOnAfter({ at }: Pick<Checkpoint, 'at'>, size: number): boolean {
    return this.newest.size > size && this.newest.at > at;
  }

  /**
   * Each checkpoint covers the first lines of the run. Returns the largest number of covered lines that is at most
   * `sequence`; 0 without such a checkpoint.
   */
  signedUpTo(sequence: number): number {
    return [...this.checkpoints.keys()].reduce((most, size) => (size <= sequence ? Math.max(most, size) : most), 0);
  }

  /**
   * Stores the time at which the registry received a checkpoint. This time is from a receipt, signed by the registry,
   * in a line of the log.
   * @param root the Merkle root in that checkpoint, in hex
   */
  receive(size: number, root: string, receivedAt: number): void {
    const kept = this.checkpoints.get(size);
    if (kept?.root !== root) return;
    kept.receivedAt ??= receivedAt;
    if (size <= (this.proved?.size ?? 0) && size > (this.witnessed?.size ?? 0)) this.witnessed = kept;
  }

  /** Compares the next line with the checkpoints. @returns how the line differs; null if it matches */
  compare(sequence: number, hash: string): Mismatch | null {
    const unlike = this.#compare(sequence, hash);
    if (this.first === 0) this.first = sequence;
    this.isUnlike ||= unlike !== null;
    return unlike;
  }

  #compare(sequence: number, hash: string): Mismatch | null {
    const { last } = this;
    if (last !== null && sequence > last.size)
      return {
        kind: 'foreign',
        message: `line ${sequence} was added: according to the checkpoint of ${timeOf(last.by)}, the log run ended with line ${last.size}`,
      };
    const tree = this.#tree;
    if (tree === null) return null;
    // The tree is restored below only if this line matches. After a missing, changed or added line, the roots of later
    // checkpoints cannot be computed any more, so the tree stays null.
    this.#tree = null;
    if (sequence !== tree.size + 1) return null;
    if (this.found?.size === sequence && this.found.hash.toString('hex') !== hash)
      return {
        kind: 'edited',
        message: `line ${sequence} of the log run was changed: its hash is not the hash that the next process found and signed at ${timeOf(this.found.by)}`,
      };
    tree.append(hash);
    const checkpoint = this.checkpoints.get(sequence);
    if (checkpoint !== undefined && checkpoint.root !== tree.root().toString('hex')) {
      const range = rangeText({ from: (this.proved?.size ?? 0) + 1, to: sequence });
      return {
        kind: 'edited',
        message: `the content of ${range} of the log run differs from what the gateway signed at ${timeOf(checkpoint)}`,
      };
    }
    this.proved = checkpoint ?? this.proved;
    if (checkpoint !== undefined && checkpoint.receivedAt !== null) this.witnessed = checkpoint;
    this.#tree = tree;
    return null;
  }
}

/** Returns the time at which a checkpoint was signed, in ISO 8601. */
export function timeOf({ at }: Pick<Checkpoint, 'at'>): string {
  return new Date(at).toISOString();
}

/**
 * Returns findings for signed lines that are missing in a log. A run (the lines of one process in one file) can
 * lack its last lines or all lines. The end checkpoint of a file names the next run, and that run can be missing too.
 * @param runs the runs of which checkpoints were given, by their ids
 * @param since in milliseconds since 1970; a run whose newest checkpoint is older is left out
 */
export function missingIn(
  chains: readonly Pick<ChainCheck, 'id' | 'newest'>[],
  runs: ReadonlyMap<string, SignedRun>,
  since: number,
): Finding[] {
  const newestOf = new Map(chains.map(({ id, newest }) => [id, newest]));
  const required = [...runs].filter(([, { newest }]) => newest.at >= since);
  const missing = required.flatMap(([run, signed]): Finding[] => {
    const { size, by } = signed.required;
    const newest = newestOf.get(run) ?? null;
    if (newest !== null && newest.sequence >= size) return [];
    const from = (newest?.sequence ?? 0) + 1;
    const message = `${rangeText({ from, to: size })} of the log run ${run} ${from === size ? 'is' : 'are'} missing, but the gateway signed this part of the log at ${timeOf(by)}`;
    return [{ ...(newest?.place ?? by.place), kind: newest === null ? 'missing' : 'truncated', message }];
  });
  const nextMissing = required.flatMap(([run, { newest }]): Finding[] => {
    const { next, place } = newest;
    if (next === undefined || runs.has(next) || newestOf.has(next)) return [];
    const message = `the log run ${next} is missing: according to the checkpoint of ${timeOf(newest)}, it follows the run ${run}; add the log file that contains the missing run, if it exists`;
    return [{ ...place, kind: 'missing', message }];
  });
  return [...missing, ...nextMissing];
}
