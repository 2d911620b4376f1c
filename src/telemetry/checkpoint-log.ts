import { constants } from 'node:fs';
import { mkdir, open } from 'node:fs/promises';
import path from 'node:path';
import { type Checkpoint, runKeyName, signCheckpoint } from '../evidence/checkpoint.js';
import { NoteSigner } from '../evidence/signed-note.js';
import type { Chain } from './chain.js';
import type { LineWriter } from './line-writer/line-writer.js';
import { NoLogFile } from './log-file.js';

/** How checkpoints are signed, and where they are kept. */
export interface CheckpointLogOptions {
  /** Signs for the instance, under its name. */
  readonly instance: NoteSigner;
  /** The file to which they are appended. Several processes may share one. */
  readonly file: string;
  /** Milliseconds between two checkpoints of a run. */
  readonly everyMilliseconds: number;
  /** Called with the reason when checkpoints cannot be written, and with null when they can be again. */
  readonly onProblem?: (problem: string | null) => void;
}

/** What has become of the checkpoints of a process. */
export interface CheckpointFigures {
  /** Why they cannot be written, in words for an operator; null while they can. */
  readonly problem: string | null;
  /** How many were written. */
  readonly kept: number;
  /** Milliseconds since the newest written checkpoint was signed; since the process began where there is none. */
  readonly ageMilliseconds: number;
}

interface Waiting {
  readonly checkpoint: Checkpoint;
  readonly note: string;
  readonly signedAt: number;
}

const retryMilliseconds = 1_000;
/** A file system may hang without an error. */
const lateIntervals = 3;
const lateMilliseconds = 5_000;
/** A file that is rotated leaves two behind that no newer one replaces. */
const mostWaiting = 1_000;
const lineEnd = 0x0a;
/** Read as well, to see whether the last line is whole; without waiting for the other end of a FIFO. */
const appending = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;

/** Signs the checkpoints of a log, and keeps them in a file: one JSON object a line, `{"note":"…"}`. */
export class CheckpointLog {
  readonly everyMilliseconds: number;
  readonly #options: CheckpointLogOptions;
  /** The oldest is the one that is being written. */
  readonly #waiting: Waiting[] = [];
  readonly #signers = new Map<string, NoteSigner>();
  #sending: Promise<void> | null = null;
  #problem: string | null = null;
  #kept = 0;
  #newestAt = performance.now();
  #isClosing = false;

  constructor(options: CheckpointLogOptions) {
    this.#options = options;
    this.everyMilliseconds = options.everyMilliseconds;
  }

  get figures(): CheckpointFigures {
    const ageMilliseconds = performance.now() - this.#newestAt;
    const isLate = ageMilliseconds > lateIntervals * this.everyMilliseconds + lateMilliseconds;
    const late = isLate ? `the newest one that was written is ${Math.round(ageMilliseconds / 1000)} s old` : null;
    return { problem: this.#problem ?? late, kept: this.#kept, ageMilliseconds };
  }

  /** Signs a checkpoint of lines that are on the disk, and keeps it as soon as that is possible. */
  add(unsigned: Omit<Checkpoint, 'name'>): void {
    const { instance } = this.#options;
    const checkpoint = { ...unsigned, name: instance.key.name };
    const note = signCheckpoint(checkpoint, instance, this.#signerOf(checkpoint));
    // The newest one covers those before it.
    const isCovered = ({ checkpoint: { run, occasion } }: Waiting): boolean =>
      run === checkpoint.run && occasion === 'periodic';
    const covered = this.#waiting.findIndex((waiting, index) => index > 0 && isCovered(waiting));
    if (covered !== -1) this.#waiting.splice(covered, 1);
    else if (this.#waiting.length >= mostWaiting) this.#waiting.splice(1, 1);
    this.#waiting.push({ checkpoint, note, signedAt: performance.now() });
    this.#sending ??= this.#send();
  }

  /** Keeps what still waits, as far as that is possible within the time. */
  async close(timeoutMilliseconds: number): Promise<void> {
    this.#isClosing = true;
    let late: NodeJS.Timeout | undefined;
    const timeout = new Promise<void>((resolve) => (late = setTimeout(resolve, timeoutMilliseconds)));
    await Promise.race([this.#sending, timeout]);
    clearTimeout(late);
  }

  #signerOf({ name, run, occasion }: Checkpoint): NoteSigner {
    const signer = this.#signers.get(run) ?? NoteSigner.inMemory(runKeyName(name, run));
    // Nothing can be signed for a run that has ended, not even by whoever reads this memory later.
    if (occasion === 'end') this.#signers.delete(run);
    else this.#signers.set(run, signer);
    return signer;
  }

  async #send(): Promise<void> {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const problem = await this.#append(next.note).then(() => null, problemOf);
      this.#tell(problem);
      if (problem === null) {
        this.#kept += 1;
        this.#newestAt = next.signedAt;
        this.#waiting.shift();
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

  #tell(problem: string | null): void {
    const text = problem === null ? null : `${this.#options.file}: ${problem}`;
    if (text === this.#problem) return;
    this.#problem = text;
    this.#options.onProblem?.(text);
  }

  async #append(note: string): Promise<void> {
    const { file } = this.#options;
    await mkdir(path.dirname(file), { recursive: true });
    const handle = await open(file, appending, 0o640);
    try {
      const stats = await handle.stat();
      if (!stats.isFile()) throw new NoLogFile(stats);
      const last = stats.size === 0 ? null : await handle.read(Buffer.alloc(1), 0, 1, stats.size - 1);
      // What a killed process had begun to write gets its line end, so that it spoils no other line.
      const isOpen = last !== null && last.buffer[0] !== lineEnd;
      await handle.appendFile(`${isOpen ? '\n' : ''}${JSON.stringify({ note })}\n`);
      await handle.datasync();
    } finally {
      await handle.close();
    }
  }
}

/** Has the lines of a log signed. */
export class LineSigner {
  readonly #checkpoints: CheckpointLog | null;
  readonly #writer: Pick<LineWriter, 'sync'>;
  readonly #now: () => number;
  /** Whether lines are on their way to the disk of which a periodic checkpoint is to be signed. */
  #isSigning = false;

  /** @param checkpoints null: nothing is signed */
  constructor(checkpoints: CheckpointLog | null, writer: Pick<LineWriter, 'sync'>, now: () => number) {
    [this.#checkpoints, this.#writer, this.#now] = [checkpoints, writer, now];
  }

  /** Signs all lines of a chain as soon as they are on the disk: a crash would else look as if they were cut off. */
  sign(
    { id: run, tree }: Pick<Chain, 'id' | 'tree'>,
    occasion: Checkpoint['occasion'],
    more: Pick<Checkpoint, 'previous' | 'next'> = {},
    onSigned?: () => void,
  ): void {
    if (this.#checkpoints === null || tree === null) return;
    const checkpoint = { run, size: tree.size, root: tree.root(), occasion, at: this.#now(), ...more };
    this.#writer.sync((isSynced) => {
      if (isSynced) this.#checkpoints?.add(checkpoint);
      onSigned?.();
    });
  }

  signPeriodically(chain: Pick<Chain, 'id' | 'tree'>): void {
    if (this.#isSigning) return;
    this.#isSigning = true;
    this.sign(chain, 'periodic', {}, () => (this.#isSigning = false));
  }
}

function problemOf(error: unknown): string {
  if (error instanceof NoLogFile) return error.message;
  return (error as NodeJS.ErrnoException).code ?? String(error);
}
