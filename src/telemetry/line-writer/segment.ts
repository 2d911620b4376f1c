import { LineBuffer, UnconfirmedLines } from './line-buffers.js';

/** The queued lines of one open file, in order. */
export interface Segment {
  readonly descriptor: number;
  readonly held: LineBuffer;
  /** The lines that must be written again if the file is removed; null for a stream. */
  readonly unconfirmed: UnconfirmedLines | null;
  /** Whether the file was removed. If so, its lines are written again to the next file. */
  isGone: boolean;
  /**
   * The lines that are being written, including the bytes already written; null if there are none. If the file's last
   * line was incomplete when the file was opened, a line end precedes the first lines and ends that incomplete line.
   */
  pending: Buffer | null;
  /** How many of the bytes in `pending` are already written. */
  taken: number;
  /** How many bytes were written to the file in total. */
  written: number;
  syncWanted: boolean;
  /** One callback for each `sync` call, called when all lines before that call are on disk, or when syncing failed. */
  synced: ((isSynced: boolean) => void)[];
}

const lineEnd = 0x0a;

/**
 * Creates the empty segment of an open file or of a stream.
 * @param isFile false for a stream, whose written lines are not kept in memory
 * @param endsWithinLine whether the file ends within a line. If so, a line end is written before all lines.
 */
export function segmentFor(descriptor: number, isFile: boolean, endsWithinLine = false): Segment {
  const pending = endsWithinLine ? Buffer.of(lineEnd) : null;
  const unconfirmed = isFile ? new UnconfirmedLines(pending?.length) : null;
  return {
    ...{ descriptor, held: new LineBuffer(), unconfirmed, isGone: false },
    ...{ pending, taken: 0, written: 0, syncWanted: false, synced: [] },
  };
}

/**
 * Returns the offset of the first line that a file does not hold completely.
 * @param taken how many of the bytes the file has accepted
 */
export function firstUnwritten(bytes: Buffer, taken: number): number {
  // A line counts as complete if only its line end is missing. A line end at offset 0 ends an older, incomplete line.
  if (bytes[taken] === lineEnd) return taken + 1;
  return taken === 0 ? 0 : bytes.lastIndexOf(lineEnd, taken - 1) + 1;
}
