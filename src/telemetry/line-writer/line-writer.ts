import { close, closeSync, fdatasync, fstat, write } from 'node:fs';
import { HeldBytes } from './held-bytes.js';
import { UnconfirmedLines } from './unconfirmed-lines.js';

/** What is held in memory at most while the destination is slow; beyond it there is no room. */
const maxHeldBytes = 16 * 1024 * 1024;
/** From here on the destination counts as not keeping up: there is still room for the lines of what is under way. */
const slowBytes = 8 * 1024 * 1024;
/** Lines wait so long for others to be written with; a write for each would cost more than the line. */
const gatherMilliseconds = 10;
const gatherBytes = 64 * 1024;
const retryMilliseconds = 1_000;
/** A pipe is mostly full for a moment: whoever reads it has not come to it yet. */
const fullPipeMilliseconds = 2;
/** There is no room now. */
const noRoom: ReadonlySet<string | undefined> = new Set(['ENOSPC', 'EDQUOT']);
/** What a file may get over: others mean that it takes nothing more, as one whose disk is broken, or that has become too large. */
const passing: ReadonlySet<string | undefined> = new Set([...noRoom, 'EAGAIN', 'EINTR']);
const lineEnd = 0x0a;

/** Lines for one open file, in their order. */
interface Segment {
  readonly descriptor: number;
  readonly held: HeldBytes;
  /** The lines to write again if the file is removed; null for a stream. */
  readonly unconfirmed: UnconfirmedLines | null;
  /** Whether the file was removed: its lines are written again to the next one. */
  isGone: boolean;
  /** What is being written, from the beginning of a line on; null: nothing is. */
  pending: Buffer | null;
  /** How much of that was taken already. */
  taken: number;
  /** How much the file has taken in all. */
  written: number;
  syncWanted: boolean;
  /** Called when everything taken before them is on the disk, or could not be put there. */
  synced: ((isSynced: boolean) => void)[];
}

/**
 * Appends lines without ever waiting for them. One write is under way at a time, so that lines keep their order; a
 * failed one is tried again from where it stopped, or, where the file takes nothing more and there is another one, there.
 */
export class LineWriter {
  readonly #segments: [Segment, ...Segment[]];
  #heldBytes = 0;
  #writing = false;
  #timer: NodeJS.Timeout | null = null;
  #failure: string | null = null;
  #onIdle: (() => void) | null = null;

  /** @param isFile false for a stream, which nobody can remove */
  constructor(descriptor: number, isFile: boolean) {
    this.#segments = [segmentFor(descriptor, isFile)];
  }

  /** Whether another line can be held. */
  get hasRoom(): boolean {
    return this.#heldBytes < maxHeldBytes;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** How many bytes the newest file has taken. */
  get written(): number {
    return this.#newest.written;
  }

  /** How many bytes it may have taken by now: those that are being written as well. */
  get handed(): number {
    const { written, pending, taken } = this.#newest;
    return written + (pending === null ? 0 : pending.length - taken);
  }

  /** Why lines are not getting out, in words for an operator; null while they are. */
  get problem(): string | null {
    return this.#failure ?? (this.#heldBytes > slowBytes ? `${this.#heldBytes} bytes wait to be written` : null);
  }

  /** Takes a line, without its line end. */
  append(line: Buffer): void {
    this.#heldBytes += this.#newest.held.add(line);
    this.#newest.unconfirmed?.add(line);
    if (!this.#writing) this.#writeOrGather();
  }

  /**
   * Has everything that was taken so far put onto the disk itself, where the destination is a file.
   * @param onSynced told whether it is there, as soon as that is known; of a stream when that has taken it
   */
  sync(onSynced?: (isSynced: boolean) => void): void {
    this.#newest.syncWanted = true;
    if (onSynced !== undefined) this.#newest.synced.push(onSynced);
    if (!this.#writing && this.#timer === null) this.#writeNext();
  }

  /** What is taken from now on goes to another file; the one before is closed when its lines are out. */
  switchTo(descriptor: number): void {
    this.#segments.push(segmentFor(descriptor, true));
    if (!this.#writing) this.#writeNext();
  }

  /** Says that the newest file still had its name after so many bytes: those need not be written again. */
  confirm(written: number): void {
    this.#newest.unconfirmed?.confirm(written);
  }

  /** How many bytes are lost if the newest file was removed. */
  get unconfirmedBytes(): number {
    return this.#newest.unconfirmed?.length ?? 0;
  }

  /**
   * Switches to another file after the newest one was removed, and writes the lines again that may have been lost with it.
   * @returns how many lines are lost because there was no room to keep them
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

  /** Writes out what is held, as far as that is possible within the time, and closes the file. */
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

  /** Lines that came while others were written gather as well: they would else go out by ones and twos, for ever. */
  #writeOrGather(): void {
    const [segment, next] = this.#segments;
    const isDue = segment.pending !== null || segment.syncWanted || next !== undefined || this.#onIdle !== null;
    if (isDue || this.#heldBytes === 0 || this.#heldBytes >= gatherBytes) {
      this.#writeNext();
      return;
    }
    this.#writing = false;
    this.#timer ??= setTimeout(() => {
      this.#writeNext();
    }, gatherMilliseconds);
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
      // A pipe cannot be synchronised; of a file whose disk fails the next write tells.
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
      const isFullPipe = error?.code === 'EAGAIN'; // no failure: how much may wait for its reader is limited
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
      else if (!passing.has(error.code)) this.#moveOn(segment, bytes, next);
      else if (!noRoom.has(error.code)) this.#writeAgain(again);
      else {
        // One that was removed to make room keeps it from the next one for as long as it is open.
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

  /** Leaves a file that takes nothing more: its lines go into the next one, from that on which was not taken whole. */
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
    ...{ descriptor, held: new HeldBytes(), unconfirmed, isGone: false },
    ...{ pending: null, taken: 0, written: 0, syncWanted: false, synced: [] },
  };
}
