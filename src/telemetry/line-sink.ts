import type { CheckpointStatus } from './checkpoints/checkpoint-log.js';

/** A destination for log lines in JSON. Writing to it never blocks the caller. */
export interface LineSink {
  /** Accepts a line: the text of a JSON object whose last member is `event`. */
  write(line: string): void;
  /** Returns why lines cannot be written, for operators; null while they can be written. */
  problem(): string | null;
  /** Returns how many lines were lost because they did not fit into memory. */
  lost(): number;
  /** Returns how many bytes another process has written to the file. */
  foreignBytes(): number;
  /** Returns how many bytes wait to be written. */
  heldBytes(): number;
  /**
   * Returns true if only the reserve is left: disk space for lines that must not be lost. Absent if the space is not
   * checked.
   */
  hasOnlyReserve?(): boolean;
  /**
   * Returns the state of the checkpoints (signed states of the log); null or absent if the log signs no checkpoints.
   */
  checkpoints?(): CheckpointStatus | null;
  /**
   * Registers a callback that writes the last lines before the log ends. If this method is absent, the owner of the log
   * writes the last lines.
   */
  beforeEnd?(callback: () => void): void;
  /** Writes the queued lines, but waits no longer than the timeout. */
  close(timeoutMilliseconds: number): Promise<void>;
}
