import { close, closeSync, fdatasync, fstat, write } from 'node:fs';
import { LineBuffer } from './held-bytes.js';
import { UnconfirmedLines } from './unconfirmed-lines.js';

/** The most bytes held in memory while the destination is slow; further lines do not fit. */
const maxHeldBytes = 16 * 1024 * 1024;
/** From here on the destination counts as too slow. Requests in progress still have room for their lines. */
const slowBytes = 8 * 1024 * 1024;
/** How long lines wait to be written together. A write per line would cost more than the line. */
const batchMilliseconds = 10;
const batchBytes = 64 * 1024;
const retryMilliseconds = 1_000;
/** A pipe is usually full for a short time only, until its reader catches up. */
const fullPipeMilliseconds = 2;
/** Errors of a full disk or an exhausted quota. */
const fullDiskCodes: ReadonlySet<string | undefined> = new Set(['ENOSPC', 'EDQUOT']);
/**
 * Errors that may pass. After any other error the file accepts nothing more: its disk is broken, or the file is too
 * large.
 */
const transientCodes: ReadonlySet<string | undefined> = new Set([...fullDiskCodes, 'EAGAIN', 'EINTR']);
const lineEnd = 0x0a;

/** The lines of one open file, in their order. */
interface Segment {
  readonly descriptor: number;
  readonly held: LineBuffer;
  /** The lines to write again if the file is removed; null for a stream. */
  readonly unconfirmed: UnconfirmedLines | null;
  /** Whether the file was removed. Its lines are then written again to the next file. */
  isGone: boolean;
  /** The bytes being written, from the beginning of a line; null without a write. */
  pending: Buffer | null;
  /** How many of these bytes are already written. */
  taken: number;
  /** How many bytes were written to the file in total. */
  written: number;
  syncWanted: boolean;
  /** Called when all lines accepted before are synced to disk, or syncing failed. */
  synced: ((isSynced: boolean) => void)[];
}

/**
 * Appends lines without blocking the caller. Only one write runs at a time, so lines keep their order. A failed write
 * resumes where it stopped, or moves to the next file if the current one accepts nothing more.
 */
export class LineWriter {
  readonly #segments: [Segment, ...Segment[]];
  #heldBytes = 0;
  #writing = false;
  #timer: NodeJS.Timeout | null = null;
  #failure: string | null = null;
  #onIdle: (() => void) | null = null;

  /** @param isFile false for a stream. Lines of a file are kept until confirmed, because the file may be removed. */
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

  /** How many bytes the newest file may contain by now, including the write in progress. */
  get handed(): number {
    const { written, pending, taken } = this.#newest;
    return written + (pending === null ? 0 : pending.length - taken);
  }

  /** Why lines cannot be written, in words for an operator; null while they can. */
  get problem(): string | null {
    return this.#failure ?? (this.#heldBytes > slowBytes ? `${this.#heldBytes} bytes wait to be written` : null);
  }

  /** Accepts a line, without its line end. */
  append(line: Buffer): void {
    this.#heldBytes += this.#newest.held.add(line);
    this.#newest.unconfirmed?.add(line);
    if (!this.#writing) this.#writeOrGather();
  }

  /**
   * Syncs everything accepted so far to disk, if the destination is a file.
   * @param onSynced called with whether that succeeded; for a stream, once it has accepted everything
   */
  sync(onSynced?: (isSynced: boolean) => void): void {
    this.#newest.syncWanted = true;
    if (onSynced !== undefined) this.#newest.synced.push(onSynced);
    if (!this.#writing && this.#timer === null) this.#writeNext();
  }

  /** Sends later lines to another file. The current file is closed once its lines are written. */
  switchTo(descriptor: number): void {
    this.#segments.push(segmentFor(descriptor, true));
    if (!this.#writing) this.#writeNext();
  }

  /** Confirms that the newest file still had its name after this many bytes. They need not be written again. */
  confirm(written: number): void {
    this.#newest.unconfirmed?.confirm(written);
  }

  /** How many bytes are lost if the newest file was removed. */
  get unconfirmedBytes(): number {
    return this.#newest.unconfirmed?.length ?? 0;
  }

  /**
   * Switches to another file after the newest one was removed, and rewrites the lines that may be lost with it.
   * @returns how many lines are lost because memory had no room for them
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

  /** Writes the held lines as far as the timeout allows, and closes the file. */
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

  /** Gathers lines that arrived during a write, too. Otherwise they would always go out one or two at a time. */
  #writeOrGather(): void {
    const [segment, next] = this.#segments;
    const isDue = segment.pending !== null || segment.syncWanted || next !== undefined || this.#onIdle !== null;
    if (isDue || this.#heldBytes === 0 || this.#heldBytes >= batchBytes) {
      this.#writeNext();
      return;
    }
    this.#writing = false;
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
      // Syncing a pipe fails. After a failed sync of a file, the next write reports the broken disk.
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
      const isFullPipe = error?.code === 'EAGAIN'; // not a failure: the number of waiting bytes is limited
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
        // A removed file occupies its disk space, which the next file needs, as long as it is open.
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

  /** Leaves a file that accepts nothing more. Its lines go to the next file, from the first incomplete line on. */
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
