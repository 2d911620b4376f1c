import { close, closeSync, fdatasync, fstat, write } from 'node:fs';
import { LineBuffer, UnconfirmedLines } from './line-buffers.js';

/** Maximum number of bytes in memory while the destination is slow. Further lines are lost. */
const maxHeldBytes = 16 * 1024 * 1024;
/**
 * Above this number of bytes in memory, the writer reports a problem. The rest up to `maxHeldBytes` is for the lines of
 * requests in progress.
 */
const slowBytes = 8 * 1024 * 1024;
/**
 * How long lines wait, so that several are written at once. A write call per line would take longer than creating the
 * line.
 */
const batchMilliseconds = 10;
const batchBytes = 64 * 1024;
const retryMilliseconds = 1_000;
/** A full pipe is retried soon, because its reader usually catches up quickly. */
const fullPipeMilliseconds = 2;
/** Error codes of a full disk or an exhausted quota. */
const fullDiskCodes: ReadonlySet<string | undefined> = new Set(['ENOSPC', 'EDQUOT']);
/**
 * Error codes of problems that can be temporary. After any other error, the file cannot be written any more: its disk
 * is broken, or the file is too large.
 */
const transientCodes: ReadonlySet<string | undefined> = new Set([...fullDiskCodes, 'EAGAIN', 'EINTR']);
const lineEnd = 0x0a;

/** The queued lines of one open file, in order. */
interface Segment {
  readonly descriptor: number;
  readonly held: LineBuffer;
  /** The lines that must be written again if the file is removed; null for a stream. */
  readonly unconfirmed: UnconfirmedLines | null;
  /** Whether the file was removed. If so, its lines are written again to the next file. */
  isGone: boolean;
  /** The bytes that are being written, from the beginning of a line; null if no write is in progress. */
  pending: Buffer | null;
  /** How many of the bytes in `pending` are already written. */
  taken: number;
  /** How many bytes were written to the file in total. */
  written: number;
  syncWanted: boolean;
  /** Callbacks of `sync`: called when all lines accepted so far are synced to disk, or syncing has failed. */
  synced: ((isSynced: boolean) => void)[];
}

/**
 * Appends lines to a file or stream without blocking the caller. Only one write runs at a time, so the lines keep their
 * order. A failed write continues where it stopped. If the file cannot be written any more, its remaining lines are
 * written to the next file.
 */
export class LineWriter {
  readonly #segments: [Segment, ...Segment[]];
  #heldBytes = 0;
  #writing = false;
  #timer: NodeJS.Timeout | null = null;
  #failure: string | null = null;
  #onIdle: (() => void) | null = null;

  /**
   * @param isFile false for a stream. Lines of a file stay in memory until `confirm`, because the file could be
   *   removed.
   */
  constructor(descriptor: number, isFile: boolean) {
    this.#segments = [segmentFor(descriptor, isFile)];
  }

  /** Whether another line fits into memory. */
  get hasRoom(): boolean {
    return this.#heldBytes < maxHeldBytes;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** How many bytes were written to the newest file. */
  get written(): number {
    return this.#newest.written;
  }

  /**
   * Maximum number of bytes of this process in the newest file: the bytes already written plus the bytes of the write
   * in progress.
   */
  get handed(): number {
    const { written, pending, taken } = this.#newest;
    return written + (pending === null ? 0 : pending.length - taken);
  }

  /** Why lines cannot be written, for operators; null while they can be written. */
  get problem(): string | null {
    return (
      this.#failure ??
      (this.#heldBytes > slowBytes ? `the destination is too slow: ${this.#heldBytes} bytes wait to be written` : null)
    );
  }

  /** Accepts a line without its line end. */
  append(line: Buffer): void {
    this.#heldBytes += this.#newest.held.add(line);
    this.#newest.unconfirmed?.add(line);
    if (!this.#writing) this.#writeOrGather();
  }

  /**
   * Syncs everything accepted so far to disk, if the destination is a file.
   * @param onSynced called with the result of syncing; for a stream, called with true once everything is written
   */
  sync(onSynced?: (isSynced: boolean) => void): void {
    this.#newest.syncWanted = true;
    if (onSynced !== undefined) this.#newest.synced.push(onSynced);
    if (!this.#writing && this.#timer === null) this.#writeNext();
  }

  /** Writes all later lines to another file. Closes the current file once its lines are written. */
  switchTo(descriptor: number): void {
    this.#segments.push(segmentFor(descriptor, true));
    if (!this.#writing) this.#writeNext();
  }

  /**
   * Records that a check found the newest file in place, neither removed nor renamed. The first `written` bytes of this
   * process in that file need not be written again.
   */
  confirm(written: number): void {
    this.#newest.unconfirmed?.confirm(written);
  }

  /** How many bytes of the newest file would be lost if it was removed. */
  get unconfirmedBytes(): number {
    return this.#newest.unconfirmed?.length ?? 0;
  }

  /**
   * Switches to another file after the newest one was removed, and writes the unconfirmed lines of the removed file
   * again.
   * @returns how many lines are lost because they did not fit into memory
   */
  replaceGone(descriptor: number): number {
    const gone = this.#newest;
    const next = segmentFor(descriptor, true);
    const { bytes, lost } = gone.unconfirmed?.take() ?? { bytes: Buffer.alloc(0), lost: 0 };
    this.#heldBytes -= gone.held.take()?.length ?? 0;
    gone.isGone = true;
    next.syncWanted = gone.synced.length > 0;
    next.synced = gone.synced.splice(0);
    if (bytes.length > 0) {
      this.#heldBytes += next.held.add(bytes.subarray(0, -1));
      next.unconfirmed?.add(bytes.subarray(0, -1));
    }
    this.#segments.push(next);
    if (!this.#writing) this.#writeNext();
    return lost;
  }

  /**
   * Writes the queued lines, but waits no longer than the timeout. Then closes the file, unless a write is still in
   * progress.
   */
  async close(timeoutMilliseconds: number): Promise<void> {
    if (!this.#writing) this.#writeNext();
    await new Promise<void>((resolve) => {
      if (!this.#writing) {
        resolve();
        return;
      }
      const giveUp = setTimeout(resolve, timeoutMilliseconds);
      const stopWaiting = (): void => {
        clearTimeout(giveUp);
        resolve();
      };
      this.#onIdle = stopWaiting;
    });
    const [{ descriptor }] = this.#segments;
    if (descriptor > 2 && !this.#writing) closeSync(descriptor);
  }

  get #newest(): Segment {
    return this.#segments.at(-1) ?? this.#segments[0];
  }

  /**
   * Starts a write, or waits for more lines to write at once. Lines that arrived during a write wait as well; otherwise
   * each write would contain only one or two lines.
   */
  #writeOrGather(): void {
    const [segment, next] = this.#segments;
    const isDue = segment.pending !== null || segment.syncWanted || next !== undefined || this.#onIdle !== null;
    this.#writing = isDue || this.#heldBytes === 0 || this.#heldBytes >= batchBytes;
    if (this.#writing) this.#writeNext();
    else
      this.#timer ??= setTimeout(() => {
        this.#writeNext();
      }, batchMilliseconds);
  }

  #writeNext(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    const [segment, next] = this.#segments;
    segment.pending ??= segment.held.take();
    this.#writing = true;
    if (segment.pending !== null) {
      this.#write(segment, segment.pending, next);
    } else if (segment.syncWanted) {
      segment.syncWanted = false;
      const synced = segment.synced.splice(0);
      // If fdatasync fails, the writer reports no problem: syncing a pipe always fails, and on a broken disk the next
      // write fails as well.
      fdatasync(segment.descriptor, (error) => {
        for (const onSynced of synced) onSynced(error === null || segment.unconfirmed === null);
        this.#writeNext();
      });
    } else if (next !== undefined) {
      this.#segments.shift();
      close(segment.descriptor, () => {
        this.#writeNext();
      });
    } else {
      this.#writing = false;
      this.#onIdle?.();
    }
  }

  #write(segment: Segment, bytes: Buffer, next: Segment | undefined): void {
    write(segment.descriptor, bytes, segment.taken, (error, written) => {
      const isFullPipe = error?.code === 'EAGAIN'; // not reported at once: `problem` reports a pipe that stays full
      this.#failure = error === null || isFullPipe ? null : `writing fails: ${error.code ?? error.message}`;
      this.#heldBytes -= written;
      segment.taken += written;
      segment.written += written;
      if (segment.taken === bytes.length) {
        segment.pending = null;
        segment.taken = 0;
      }
      if (error === null) {
        this.#writeOrGather();
        return;
      }
      if (segment.isGone) {
        this.#heldBytes -= bytes.length - segment.taken;
        segment.pending = null;
        segment.taken = 0;
        this.#writeNext();
        return;
      }
      const again = isFullPipe ? fullPipeMilliseconds : retryMilliseconds;
      if (next === undefined) this.#writeAgain(again);
      else if (!transientCodes.has(error.code)) this.#moveOn(segment, bytes, next);
      else if (!fullDiskCodes.has(error.code)) this.#writeAgain(again);
      else {
        // A removed file uses disk space as long as it is open. The next file needs this space, so the writer gives up
        // the removed file at once.
        fstat(segment.descriptor, (unknown, found) => {
          if (unknown === null && found.nlink === 0) this.#moveOn(segment, bytes, next);
          else this.#writeAgain(again);
        });
      }
    });
  }

  #writeAgain(milliseconds: number): void {
    setTimeout(() => {
      this.#writeNext();
    }, milliseconds).unref();
  }

  /**
   * Gives up a file that cannot be written any more. Its lines are written to the next file, beginning with the line
   * that is only partly written.
   */
  #moveOn(segment: Segment, bytes: Buffer, next: Segment): void {
    const begin = segment.taken === 0 ? 0 : bytes.lastIndexOf(lineEnd, segment.taken - 1) + 1;
    this.#heldBytes += segment.taken - begin;
    next.pending = Buffer.concat([bytes.subarray(begin), segment.held.take() ?? Buffer.alloc(0)]);
    next.unconfirmed?.prepend(next.pending);
    next.syncWanted ||= segment.syncWanted;
    next.synced.unshift(...segment.synced.splice(0));
    segment.pending = null;
    segment.taken = 0;
    segment.syncWanted = false;
    this.#writeNext();
  }
}

function segmentFor(descriptor: number, isFile: boolean): Segment {
  const unconfirmed = isFile ? new UnconfirmedLines() : null;
  return {
    ...{ descriptor, held: new LineBuffer(), unconfirmed, isGone: false },
    ...{ pending: null, taken: 0, written: 0, syncWanted: false, synced: [] },
  };
}
