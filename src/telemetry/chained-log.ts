import { close, fstat, fstatSync, mkdirSync, open, openSync, stat } from 'node:fs';
import path from 'node:path';
import { Chain, runEndOf, type LogOrigin, type LogSecret, predecessorOf, treeAlgorithm } from './chain.js';
import { type CheckpointStatus, type CheckpointLog, LineSigner } from './checkpoints/checkpoint-log.js';
import type { LineSink } from './line-sink.js';
import { LineWriter } from './line-writer/line-writer.js';
import {
  appending,
  FileGrowth,
  FreeSpace,
  NotARegularFile,
  readLogEnd,
  type readFreeBytes,
  requireLogFile,
} from './log-file.js';

/** Options of an access log. */
export interface ChainedLogOptions {
  /** `stdout`, or the path of the file to append to. */
  readonly destination: string;
  readonly secret: LogSecret;
  readonly environment: string;
  /** Identifies the process in each line; undefined omits it. */
  readonly origin?: LogOrigin;
  /**
   * The signer and store of checkpoints of the lines. If given, the lines are leaves of a Merkle tree. Null or
   * undefined: no checkpoints are signed.
   */
  readonly checkpoints?: CheckpointLog | null;
  /** Returns the time in milliseconds since 1970. */
  readonly now: () => number;
  /** Called if the file was renamed or removed and no new file can be opened. Lines then go to the old file. */
  readonly onReopenFailure: (error: Error) => void;
  /** Called when a new file is written after a rotation. */
  readonly onReopened?: () => void;
  /** Called once, when another process writes to the file as well. */
  readonly onOtherWriter?: () => void;
  /** Called with the reason when writing fails, and with null when it works again. */
  readonly onProblem?: (problem: string | null) => void;
  /** Free bytes of the file system that are reserved for lines that must not be lost; default 0. */
  readonly reserveBytes?: number;
  /** Called with true when fewer than `reserveBytes` are free, and with false when more are free again. */
  readonly onReserve?: (hasOnlyReserve: boolean) => void;
  /** Reads the free bytes of the file system. The default queries the operating system. */
  readonly readFreeBytes?: typeof readFreeBytes;
  /** Milliseconds between two checkpoint lines; default 60,000. */
  readonly checkpointMilliseconds?: number;
  /** Milliseconds between checks for a renamed or removed file and for failed writes; default 250. */
  readonly renameMilliseconds?: number;
}

/** An access log whose lines form a hash chain, on standard output or in a file that can be rotated. */
export class ChainedLog implements LineSink {
  readonly #options: ChainedLogOptions;
  readonly #file: string | null;
  /** If checkpoints are signed, each file has its own chain, so that an old file can be deleted. */
  #chain: Chain;
  readonly #checkpoints: CheckpointLog | null;
  readonly #writer: LineWriter;
  readonly #signer: LineSigner;
  readonly #timers: NodeJS.Timeout[];
  /** The check of free disk space; null for standard output, because its free space is unknown. */
  readonly #space: FreeSpace | null;
  #beforeEnd: () => void = () => undefined;
  #descriptor: number;
  #growth: FileGrowth;
  #lost = 0;
  /** The number of lines that were lost before the current chain began. */
  #lostBefore = 0;
  #foreignBytes = 0;
  #reportedProblem: string | null = null;
  #reopening = false;
  #reopenFailed = false;
  /** Whether the file was removed and no new file can be opened, so that its lines are lost at exit. */
  #isFileRemoved = false;
  #closing: Promise<void> | null = null;

  /** @throws the error of the file system if the file cannot be opened */
  constructor(options: ChainedLogOptions) {
    const { destination, checkpointMilliseconds = 60_000, renameMilliseconds = 250, checkpoints = null } = options;
    [this.#options, this.#checkpoints] = [options, checkpoints];
    this.#file = destination === 'stdout' ? null : destination;
    if (this.#file !== null) mkdirSync(path.dirname(this.#file), { recursive: true });
    const end = this.#file === null ? null : readLogEnd(this.#file);
    this.#descriptor = this.#file === null ? 1 : openSync(this.#file, appending, 0o640);
    this.#growth = new FileGrowth(this.#file === null ? 0 : fstatSync(this.#descriptor).size);
    this.#writer = new LineWriter(this.#descriptor, this.#file !== null);
    this.#signer = new LineSigner(checkpoints, this.#writer, options.now);
    this.#chain = this.#newChain();
    const { reserveBytes = 0, onReserve = () => undefined } = options;
    this.#space =
      this.#file === null ? null : new FreeSpace(this.#file, reserveBytes, onReserve, options.readFreeBytes);
    // Terminates the incomplete line of a killed process; the next line would otherwise be appended to it.
    if (end?.isOpen === true) this.#writer.append(Buffer.alloc(0));
    const predecessor = end?.predecessor;
    const neighbours = predecessor === undefined ? {} : { predecessor };
    this.#writer.append(this.#chain.checkpoint('start', options.now(), 0, neighbours));
    this.#signer.sign(this.#chain, 'start', { previous: runEndOf(predecessor) });
    checkpoints?.onRefused((run) => {
      if (run === this.#chain.id && this.#closing === null) this.#beginNextRun(() => undefined);
    });
    this.#timers = [
      setInterval(() => {
        this.#checkpoint('interval');
      }, checkpointMilliseconds).unref(),
      ...(checkpoints === null
        ? []
        : [
            setInterval(() => {
              this.#signer.signPeriodically(this.#chain);
            }, checkpoints.everyMilliseconds).unref(),
          ]),
      setInterval(() => {
        this.#checkFile();
        this.#space?.check();
        this.#reportProblem();
      }, renameMilliseconds).unref(),
    ];
  }

  write(line: string): void {
    if (this.#closing !== null || !this.#writer.hasRoom) this.#lost += 1;
    else this.#writer.append(this.#chain.seal(line));
  }

  problem(): string | null {
    const problem =
      this.#writer.problem ?? (this.#isFileRemoved ? 'the file was removed and cannot be recreated' : null);
    return problem === null ? null : `${problem}; lines lost: ${this.#lost}`;
  }

  lost(): number {
    return this.#lost;
  }

  foreignBytes(): number {
    return this.#foreignBytes;
  }

  heldBytes(): number {
    return this.#isFileRemoved ? this.#writer.unconfirmedBytes : this.#writer.heldBytes;
  }

  hasOnlyReserve(): boolean {
    return this.#space?.hasOnlyReserve ?? false;
  }

  checkpoints(): CheckpointStatus | null {
    return this.#checkpoints?.status ?? null;
  }

  beforeEnd(callback: () => void): void {
    this.#beforeEnd = callback;
  }

  /** Continues in a new file if log rotation has renamed or removed the current one. Otherwise does nothing. */
  reopen(): void {
    const file = this.#file;
    if (file === null || this.#reopening || this.#closing !== null) return;
    this.#reopening = true;
    open(file, appending, 0o640, (error, descriptor) => {
      if (error === null) this.#switchIfReplaced(descriptor);
      else this.#failToReopen(error);
    });
  }

  close(timeoutMilliseconds: number): Promise<void> {
    if (this.#closing !== null) return this.#closing;
    for (const timer of this.#timers) clearInterval(timer);
    this.#beforeEnd();
    this.#checkpoint('end');
    this.#signer.sign(this.#chain, 'end');
    this.#replaceIfGone();
    return (this.#closing = this.#close(timeoutMilliseconds));
  }

  async #close(timeoutMilliseconds: number): Promise<void> {
    const began = performance.now();
    await this.#writer.close(timeoutMilliseconds);
    await this.#checkpoints?.close(timeoutMilliseconds - (performance.now() - began));
  }

  #newChain(): Chain {
    const { secret, environment, origin = null } = this.#options;
    return new Chain(this.#checkpoints === null ? secret : treeAlgorithm, environment, origin);
  }

  /** Writes the last lines to a new file at shutdown if the current file was removed. */
  #replaceIfGone(): void {
    if (this.#file === null || fstatSync(this.#descriptor).nlink > 0) return;
    this.#isFileRemoved = true;
    try {
      requireLogFile(this.#file);
      this.#lost += this.#writer.replaceGone(openSync(this.#file, appending, 0o640));
      this.#isFileRemoved = false;
    } catch (error) {
      this.#options.onReopenFailure(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #reportProblem(): void {
    const problem = this.problem();
    if ((problem === null) !== (this.#reportedProblem === null)) this.#options.onProblem?.(problem);
    this.#reportedProblem = problem;
  }

  #checkpoint(
    reason: 'interval' | 'file-end' | 'file-start' | 'end',
    more: Parameters<Chain['checkpoint']>[3] = {},
  ): void {
    if (reason === 'interval' && !this.#writer.hasRoom) return;
    const lost = this.#lost - this.#lostBefore;
    const received = reason === 'interval' ? this.#checkpoints?.received : null;
    this.#writer.append(this.#chain.checkpoint(reason, this.#options.now(), lost, { ...more, ...received }));
    if (this.#file !== null) this.#writer.sync();
  }

  #failToReopen(error: Error): void {
    this.#reopening = false;
    fstat(this.#descriptor, (heldError, held) => {
      this.#isFileRemoved = heldError === null && held.nlink === 0;
    });
    if (!this.#reopenFailed) this.#options.onReopenFailure(error);
    this.#reopenFailed = true;
  }

  #switchIfReplaced(descriptor: number): void {
    fstat(descriptor, (error, opened) => {
      fstat(this.#descriptor, (heldError, held) => {
        if (error === null && !opened.isFile()) {
          close(descriptor);
          this.#failToReopen(new NotARegularFile(opened));
          return;
        }
        this.#reopening = false;
        const isSame = heldError === null && held.ino === opened.ino && held.dev === opened.dev;
        if (error !== null || isSame || this.#closing !== null) {
          close(descriptor);
          return;
        }
        this.#continueIn(descriptor, opened.size, heldError === null && held.nlink === 0);
      });
    });
  }

  #continueIn(descriptor: number, size: number, isFormerGone: boolean): void {
    this.#reopenFailed = false;
    this.#isFileRemoved = false;
    this.#beginNextRun(() => {
      this.#descriptor = descriptor;
      this.#growth = new FileGrowth(size);
      if (isFormerGone) this.#lost += this.#writer.replaceGone(descriptor);
      else this.#writer.switchTo(descriptor);
    });
    this.#options.onReopened?.();
  }

  /** Switches files, with a checkpoint line before and after. If checkpoints are signed, begins a new hash chain. */
  #beginNextRun(switchFile: () => void): void {
    const former = this.#chain;
    const next = this.#checkpoints === null ? former : this.#newChain();
    const isOther = next !== former;
    this.#checkpoint('file-end', isOther ? { next: next.id } : {});
    this.#signer.sign(former, 'end', { next: next.id });
    switchFile();
    if (isOther) [this.#chain, this.#lostBefore] = [next, this.#lost];
    this.#checkpoint('file-start', isOther ? { predecessor: predecessorOf(former.end) } : {});
    this.#signer.sign(this.#chain, 'start', { previous: former.end });
  }

  /** Reopens a renamed or removed file. Otherwise counts the bytes that another process wrote to the file. */
  #checkFile(): void {
    const file = this.#file;
    if (file === null || this.#reopening) return;
    stat(file, (error, there) => {
      if (error !== null) {
        this.reopen();
        return;
      }
      const growth = this.#growth;
      const { written } = this.#writer;
      fstat(this.#descriptor, (heldError, held) => {
        // Ignore the result if the log has switched to another file during this check.
        if (heldError !== null || growth !== this.#growth) return;
        if (held.ino !== there.ino || held.dev !== there.dev) {
          this.reopen();
          return;
        }
        this.#writer.confirm(written);
        if (held.isFile()) this.#countForeign(growth.foreignBytes(held.size, written, this.#writer.handed));
      });
    });
  }

  #countForeign(bytes: number): void {
    if (bytes > 0 && this.#foreignBytes === 0) this.#options.onOtherWriter?.();
    this.#foreignBytes += bytes;
  }
}
