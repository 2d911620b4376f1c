import { close, fstat, fstatSync, mkdirSync, open, openSync, stat } from 'node:fs';
import path from 'node:path';
import { Chain, lineFoundBy, type LogOrigin, type LogSecret, predecessorOf, treeAlgorithm } from './chain.js';
import { type CheckpointFigures, type CheckpointLog, LineSigner } from './checkpoint-log.js';
import type { LineSink } from './line-sink.js';
import { LineWriter } from './line-writer/line-writer.js';
import {
  appending,
  FileGrowth,
  FreeSpace,
  NoLogFile,
  readFileEnd,
  type readFreeBytes,
  requireLogFile,
} from './log-file.js';

/** How a log is kept. */
export interface ChainedLogOptions {
  /** `stdout`, or the path of a file to append to. */
  readonly destination: string;
  readonly secret: LogSecret;
  readonly environment: string;
  /** Stands in each line; left out: nothing does. */
  readonly origin?: LogOrigin;
  /** Signs and keeps checkpoints of the lines, which are leaves of a tree then; null or left out: they form a chain alone. */
  readonly checkpoints?: CheckpointLog | null;
  /** The time, in milliseconds since 1970. */
  readonly now: () => number;
  /** Told when the file was renamed and no new one can be opened; lines go on into the old one. */
  readonly onReopenFailure: (error: Error) => void;
  /** Told when lines go on into a new file. */
  readonly onReopened?: () => void;
  /** Told once that another process writes the file as well. */
  readonly onOtherWriter?: () => void;
  /** Told why lines are not getting out, and, with null, when they are again. */
  readonly onProblem?: (problem: string | null) => void;
  /** The room on its file system below which only its reserve is left; 0 unless given. */
  readonly reserveBytes?: number;
  /** Told when only that is left, and when there is more again. */
  readonly onReserve?: (hasOnlyReserve: boolean) => void;
  /** Reads how much room there is; left out: the operating system is asked. */
  readonly readFreeBytes?: typeof readFreeBytes;
  /** Milliseconds between checkpoints; a minute unless given. */
  readonly checkpointMilliseconds?: number;
  /** Milliseconds between looks at whether the file was renamed or removed, and lines get out; a quarter of a second unless given. */
  readonly renameMilliseconds?: number;
}

/** A log whose lines form a chain, with checkpoints, in a file that may be rotated, or on standard output. */
export class ChainedLog implements LineSink {
  readonly #options: ChainedLogOptions;
  readonly #file: string | null;
  /** Where checkpoints are signed, each file has one of its own, so that a file can be deleted. */
  #chain: Chain;
  readonly #checkpoints: CheckpointLog | null;
  readonly #writer: LineWriter;
  readonly #signer: LineSigner;
  readonly #timers: NodeJS.Timeout[];
  /** Null: nobody can say it of a stream. */
  readonly #space: FreeSpace | null;
  #beforeEnd: () => void = () => undefined;
  #descriptor: number;
  #growth: FileGrowth;
  #lost = 0;
  /** Those lost before the present chain began. */
  #lostBefore = 0;
  #foreignBytes = 0;
  #told: string | null = null;
  #reopening = false;
  #reopenFailed = false;
  /** Whether what is written goes with this process: nobody can open the file any more, and there is no other one. */
  #isFileGone = false;
  #closing: Promise<void> | null = null;

  /** @throws the file system's error when the file cannot be opened */
  constructor(options: ChainedLogOptions) {
    const { destination, checkpointMilliseconds = 60_000, renameMilliseconds = 250, checkpoints = null } = options;
    [this.#options, this.#checkpoints] = [options, checkpoints];
    this.#file = destination === 'stdout' ? null : destination;
    if (this.#file !== null) mkdirSync(path.dirname(this.#file), { recursive: true });
    const end = this.#file === null ? null : readFileEnd(this.#file);
    this.#descriptor = this.#file === null ? 1 : openSync(this.#file, appending, 0o640);
    this.#growth = new FileGrowth(this.#file === null ? 0 : fstatSync(this.#descriptor).size);
    this.#writer = new LineWriter(this.#descriptor, this.#file !== null);
    this.#signer = new LineSigner(checkpoints, this.#writer, options.now);
    this.#chain = this.#newChain();
    const { reserveBytes = 0, onReserve = () => undefined } = options;
    this.#space =
      this.#file === null ? null : new FreeSpace(this.#file, reserveBytes, onReserve, options.readFreeBytes);
    // What a killed process had begun to write gets its line end, so that it spoils no line of this one.
    if (end?.isOpen === true) this.#writer.append(Buffer.alloc(0));
    const predecessor = end?.predecessor;
    const neighbours = predecessor === undefined ? {} : { predecessor };
    this.#writer.append(this.#chain.checkpoint('start', options.now(), 0, neighbours));
    this.#signer.sign(this.#chain, 'start', { previous: lineFoundBy(predecessor) });
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
        this.#look();
        this.#space?.look();
        this.#tellOfProblem();
      }, renameMilliseconds).unref(),
    ];
  }

  write(line: string): void {
    if (this.#closing !== null || !this.#writer.hasRoom) this.#lost += 1;
    else this.#writer.append(this.#chain.seal(line));
  }

  problem(): string | null {
    const problem =
      this.#writer.problem ?? (this.#isFileGone ? 'the file was removed, and no new one can be opened' : null);
    return problem === null ? null : `${problem}; lines lost: ${this.#lost}`;
  }

  lost(): number {
    return this.#lost;
  }

  foreignBytes(): number {
    return this.#foreignBytes;
  }

  heldBytes(): number {
    return this.#isFileGone ? this.#writer.unconfirmedBytes : this.#writer.heldBytes;
  }

  hasOnlyReserve(): boolean {
    return this.#space?.hasOnlyReserve ?? false;
  }

  checkpoints(): CheckpointFigures | null {
    return this.#checkpoints?.figures ?? null;
  }

  beforeEnd(callback: () => void): void {
    this.#beforeEnd = callback;
  }

  /** Goes on in a new file of the same name, where the present one was renamed; else does nothing. */
  reopen(): void {
    const file = this.#file;
    if (file === null || this.#reopening || this.#closing !== null) return;
    this.#reopening = true;
    open(file, appending, 0o640, (error, descriptor) => {
      if (error === null) this.#takeIfOther(descriptor);
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

  /** The last look, at the end of the process: the lines of a removed file go into a new one. */
  #replaceIfGone(): void {
    if (this.#file === null || fstatSync(this.#descriptor).nlink > 0) return;
    this.#isFileGone = true;
    try {
      requireLogFile(this.#file);
      this.#lost += this.#writer.replaceGone(openSync(this.#file, appending, 0o640));
      this.#isFileGone = false;
    } catch (error) {
      this.#options.onReopenFailure(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #tellOfProblem(): void {
    const problem = this.problem();
    if ((problem === null) !== (this.#told === null)) this.#options.onProblem?.(problem);
    this.#told = problem;
  }

  #checkpoint(
    reason: 'interval' | 'file-end' | 'file-start' | 'end',
    neighbours: Parameters<Chain['checkpoint']>[3] = {},
  ): void {
    if (reason === 'interval' && !this.#writer.hasRoom) return;
    const lost = this.#lost - this.#lostBefore;
    this.#writer.append(this.#chain.checkpoint(reason, this.#options.now(), lost, neighbours));
    if (this.#file !== null) this.#writer.sync();
  }

  #failToReopen(error: Error): void {
    this.#reopening = false;
    fstat(this.#descriptor, (heldError, held) => {
      this.#isFileGone = heldError === null && held.nlink === 0;
    });
    if (!this.#reopenFailed) this.#options.onReopenFailure(error);
    this.#reopenFailed = true;
  }

  #takeIfOther(descriptor: number): void {
    fstat(descriptor, (error, opened) => {
      fstat(this.#descriptor, (heldError, held) => {
        if (error === null && !opened.isFile()) {
          close(descriptor);
          this.#failToReopen(new NoLogFile(opened));
          return;
        }
        this.#reopening = false;
        const isSame = heldError === null && held.ino === opened.ino && held.dev === opened.dev;
        if (error !== null || isSame || this.#closing !== null) {
          close(descriptor);
          return;
        }
        this.#goOnIn(descriptor, opened.size, heldError === null && held.nlink === 0);
      });
    });
  }

  #goOnIn(descriptor: number, size: number, isFormerGone: boolean): void {
    this.#reopenFailed = false;
    this.#isFileGone = false;
    const former = this.#chain;
    const next = this.#checkpoints === null ? former : this.#newChain();
    const isOther = next !== former;
    this.#checkpoint('file-end', isOther ? { next: next.id } : {});
    this.#signer.sign(former, 'end', { next: next.id });
    this.#descriptor = descriptor;
    this.#growth = new FileGrowth(size);
    if (isFormerGone) this.#lost += this.#writer.replaceGone(descriptor);
    else this.#writer.switchTo(descriptor);
    if (isOther) [this.#chain, this.#lostBefore] = [next, this.#lost];
    this.#checkpoint('file-start', isOther ? { predecessor: predecessorOf(former.end) } : {});
    this.#signer.sign(this.#chain, 'start', { previous: former.end });
    this.#options.onReopened?.();
  }

  /** Looks at whether the file was renamed, and whether another process writes it. */
  #look(): void {
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
        // Lines go on into another file since.
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
