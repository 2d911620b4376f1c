import type { CheckpointStatus } from './checkpoints/checkpoint-log.js';

/** A destination for log lines in JSON. Writing to it never blocks the caller. */
export interface LineSink {
  /** Accepts a line: the text of a JSON object whose last member is `event`. */
  write(line: string): void;
  /** Returns why lines cannot be written, for operators; null while they can be written. */
  problem(): string | null;
  /** Returns how many lines were lost: they did not fit into memory, or were written after `close`. */
  lost(): number;
  /** Returns how many bytes another process has written to the file. */
  foreignBytes(): number;
  /** Returns how many bytes wait to be written. */
  heldBytes(): number;
  /**
   * Returns true if the disk has only the reserve left, which is kept for lines that must not be lost. This method is
   * absent if free space is not checked.
   */
  hasOnlyReserve?(): boolean;
  /**
   * Returns the delivery state of the log's checkpoints, which are signed states of the log. Null, or the method is
   * absent, if the log signs no checkpoints.
   */
  checkpoints?(): CheckpointStatus | null;
  /**
   * Registers a callback that `close` calls first, so that the callback can write the last lines. If this method is
   * absent, the last lines must be written before `close` is called.
   */
  beforeEnd?(callback: () => void): void;
  /** Writes the queued lines, but waits no longer than the timeout. */
  close(timeoutMilliseconds: number): Promise<void>;
}
