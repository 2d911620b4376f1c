import { close, fstat, fstatSync, mkdirSync, open, openSync, stat } from 'node:fs';
import path from 'node:path';
import { Chain, runEndOf, predecessorOf, treeAlgorithm } from './chain.js';
import { type CheckpointStatus, type CheckpointLog, LineSigner } from './checkpoints/checkpoint-log.js';
import type { LineSink } from './line-sink.js';
import { LineWriter } from './line-writer/line-writer.js';
import type { ChainedLogOptions } from './line-writer/log-options.js';
import {
  appending,
  countNames,
  endsWithinLine,
  FileGrowth,
  FreeSpace,
  NotARegularFile,
  readLogEnd,
  requireLogFile,
} from './log-file.js';

/** An access log whose lines form a hash chain, on standard output or in a file that can be rotated. */
export class ChainedLog implements LineSink {
  readonly #options: ChainedLogOptions;
  readonly #file: string | null;
  /** The chain of new lines. If checkpoints are signed, each file has its own chain, so old files can be deleted. */
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
  /** How many of the lost lines belong to earlier chains. Checkpoint lines of the current chain do not count these. */
  #lostBefore = 0;
  #foreignBytes = 0;
  #reportedProblem: string | null = null;
  #reopening = false;
  #reopenFailed = false;
  /** Whether the file was removed and no new file can be opened. If so, the removed file's lines are lost at exit. */
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
              if (this.#signer.needsLine(this.#chain)) this.#checkpoint('interval');
              this.#signer.signPeriodically(this.#chain);
            }, checkpoints.everyMilliseconds).unref(),
          ]),
      setInterval(() => {
        this.#checkFile();
        this.#space?.check();
        this.#reportProblem();
        this.#resync();
      }, renameMilliseconds).unref(),
    ];
  }

  write(line: string): void {
    if (this.#closing !== null || !this.#writer.hasRoom) this.#lost += 1;
    else this.#writer.append(this.#chain.seal(line));
  }

  problem(): string | null {
    const problem =
      this.#writer.problem ??
      (this.#isFileRemoved
        ? 'the file was removed, and a new one cannot be created: check that its directory exists and that the gateway may write to it'
        : null);
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
      if (error === null) this.#switchIfReplaced(file, descriptor);
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

  /** Writes the last lines to a new file at shutdown if the current file was removed or cannot be accessed any more. */
  #replaceIfGone(): void {
    if (this.#file === null) return;
    const names = countNames(this.#descriptor);
    if (names !== null && names > 0) return;
    this.#isFileRemoved = names === 0;
    try {
      requireLogFile(this.#file);
      const descriptor = openSync(this.#file, appending, 0o640);
      if (names === null) this.#writer.switchTo(descriptor, endsWithinLine(this.#file));
      else this.#lost += this.#writer.replaceGone(descriptor);
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

  /**
   * After a failed sync, writes a line each second until the disk stores lines again. Once it does, begins a new hash
   * chain if checkpoints are signed.
   */
  #resync(): void {
    if (this.#writer.isResyncDue) this.#checkpoint('interval');
    else if (!this.#writer.isUnsynced && this.#signer.mustEnd(this.#chain)) this.#beginNextRun(() => undefined);
  }

  #checkpoint(
    reason: 'interval' | 'file-end' | 'file-start' | 'end',
    more: Parameters<Chain['checkpoint']>[3] = {},
  ): void {
    if (reason === 'interval' && !this.#writer.hasRoom) return;
    const lost = this.#lost - this.#lostBefore;
    const received = reason === 'interval' ? this.#checkpoints?.received : null;
    this.#writer.append(this.#chain.checkpoint(reason, this.#options.now(), lost, { ...more, ...received }));
    if (this.#file !== null) this.#signer.sync(this.#chain.id);
  }

  #failToReopen(error: Error): void {
    this.#reopening = false;
    fstat(this.#descriptor, (heldError, held) => {
      this.#isFileRemoved = heldError === null && held.nlink === 0;
    });
    if (!this.#reopenFailed) this.#options.onReopenFailure(error);
    this.#reopenFailed = true;
  }

  #switchIfReplaced(file: string, descriptor: number): void {
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
        this.#continueIn(file, descriptor, opened.size, heldError === null && held.nlink === 0);
      });
    });
  }

  #continueIn(file: string, descriptor: number, size: number, isFormerGone: boolean): void {
    this.#reopenFailed = false;
    this.#isFileRemoved = false;
    // After ESTALE, `file` names the same file as before, and the failed write can have left an incomplete line in it.
    const isOpen = size > 0 && endsWithinLine(file);
    this.#beginNextRun(() => {
      this.#descriptor = descriptor;
      this.#growth = new FileGrowth(size);
      if (isFormerGone) this.#lost += this.#writer.replaceGone(descriptor);
      else this.#writer.switchTo(descriptor, isOpen);
    });
    this.#options.onReopened?.();
  }

  /** Calls `switchFile` between two checkpoint lines. If checkpoints are signed, also begins a new hash chain. */
  #beginNextRun(switchFile: () => void): void {
    const former = this.#chain;
    const next = this.#checkpoints === null ? former : this.#newChain();
    const isOther = next !== former;
    this.#checkpoint('file-end', isOther ? { next: next.id } : {});
    this.#signer.sign(former, 'end', { next: next.id });
    const lostBefore = this.#lost; // read before the switch: the next chain states the lines that the switch loses
    switchFile();
    if (isOther) [this.#chain, this.#lostBefore] = [next, lostBefore];
    this.#checkpoint('file-start', isOther ? { predecessor: predecessorOf(former.end) } : {});
    this.#signer.sign(this.#chain, 'start', { previous: former.end });
  }

  /**
   * If the file was renamed or removed, or cannot be accessed any more, calls `reopen`. Otherwise confirms written
   * lines, and counts the bytes that other processes added to the file.
   */
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
        if (growth !== this.#growth) return;
        // On NFS, the descriptor can become stale (ESTALE) and never work again, although the path names a file.
        if (heldError !== null || held.ino !== there.ino || held.dev !== there.dev) {
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
