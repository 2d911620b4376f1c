import { close, closeSync, fdatasync, fstat, write } from 'node:fs';
import { firstUnwritten, type Segment, segmentFor } from './segment.js';
import { SyncFailure } from './sync-failure.js';

/** Maximum number of bytes in memory while the destination is slow. Further lines are lost. */
const maxHeldBytes = 16 * 1024 * 1024;
/**
 * Above this number of bytes in memory, the writer reports a problem, and the gateway can reject new requests. The rest
 * up to `maxHeldBytes` is for the lines of requests in progress.
 */
const slowBytes = 8 * 1024 * 1024;
/**
 * How long lines wait, so that several are written together. A write call per line would take longer than creating the
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
  readonly #syncFailure = new SyncFailure();
  #onIdle: (() => void) | null = null;
  /** Whether `close` has stopped waiting. Lines that are not on disk yet may be lost when the process exits. */
  #isClosed = false;

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
   * Upper bound of this process's bytes in the newest file: the bytes already written plus the bytes of the write in
   * progress.
   */
  get handed(): number {
    const { written, pending, taken } = this.#newest;
    return written + (pending === null ? 0 : pending.length - taken);
  }

  /** Why lines cannot be written, for operators; null while they can be written. */
  get problem(): string | null {
    return (
      this.#failure ??
      this.#syncFailure.problem ??
      (this.#isClosed && this.#writing ? 'writing or syncing did not end in time' : null) ??
      (this.#heldBytes > slowBytes ? `the destination is too slow: ${this.#heldBytes} bytes wait to be written` : null)
    );
  }

  /** Whether a sync to disk failed, and no sync of later lines has succeeded yet. */
  get isUnsynced(): boolean {
    return this.#syncFailure.problem !== null;
  }

  /** Whether a further line should be written and synced now, to find out whether the disk stores lines again. */
  get isResyncDue(): boolean {
    return !this.#writing && this.#syncFailure.isRetryDue;
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
  sync(onSynced: (isSynced: boolean) => void): void {
    this.#newest.syncWanted = true;
    this.#newest.synced.push(onSynced);
    if (!this.#writing && this.#timer === null) this.#writeNext();
  }

  /**
   * Writes all later lines to another file. Closes the current file once its lines are written.
   * @param endsWithinLine whether the other file ends within a line, to which the next line would be appended
   */
  switchTo(descriptor: number, endsWithinLine: boolean): void {
    const next = segmentFor(descriptor, true, endsWithinLine);
    this.#heldBytes += next.pending?.length ?? 0;
    this.#segments.push(next);
    if (!this.#writing) this.#writeNext();
  }

  /**
   * Records that a check found the newest file neither removed nor renamed. So the first `written` bytes that this
   * process wrote to the file are safe, and need not be written again.
   */
  confirm(written: number): void {
    this.#newest.unconfirmed?.confirm(written);
  }

  /** How many bytes would be written again if the newest file was removed: its lines that are not confirmed yet. */
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
    this.#isClosed = true;
    const [{ descriptor }] = this.#segments;
    if (descriptor > 2 && !this.#writing) closeSync(descriptor);
  }

  get #newest(): Segment {
    return this.#segments.at(-1) ?? this.#segments[0];
  }

  /**
   * Starts a write, or waits a moment to write more lines together. Lines that arrived during a write also wait.
   * Otherwise each write would contain only one or two lines.
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
      this.#syncFile(segment, (isSynced) => {
        for (const onSynced of synced) onSynced(isSynced);
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

  #syncFile(segment: Segment, onSynced: (isSynced: boolean) => void): void {
    fdatasync(segment.descriptor, (error) => {
      onSynced(segment.unconfirmed === null || this.#syncFailure.record(segment, error)); // syncing a pipe always fails
    });
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
   * Gives up a file that cannot be written any more. Its remaining lines are written to the next file, beginning with
   * the line that is only partly written. `sync` reports success only once the lines in the old file are on disk too.
   */
  #moveOn(segment: Segment, bytes: Buffer, next: Segment): void {
    const begin = firstUnwritten(bytes, segment.taken);
    this.#heldBytes += segment.taken - begin;
    const lines = Buffer.concat([bytes.subarray(begin), segment.held.take() ?? Buffer.alloc(0)]);
    next.pending = next.pending === null ? lines : Buffer.concat([next.pending, lines]);
    next.unconfirmed?.prepend(lines);
    next.syncWanted ||= segment.syncWanted;
    const former = { isSynced: false };
    const synced = segment.synced.splice(0).map((onSynced) => (isSynced: boolean) => {
      onSynced(isSynced && former.isSynced);
    });
    next.synced.unshift(...synced);
    segment.pending = null;
    segment.taken = 0;
    segment.syncWanted = false;
    this.#syncFile(segment, (isSynced) => {
      former.isSynced = isSynced;
      this.#writeNext();
    });
  }
}
