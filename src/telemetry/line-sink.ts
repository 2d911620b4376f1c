import type { CheckpointStatus } from './checkpoints/checkpoint-log.js';

/** A destination for JSON lines that never blocks the caller. */
export interface LineSink {
  /** Accepts a line: the text of a JSON object whose last member is `event`. */
  write(line: string): void;
  /** Why lines cannot be written, in words for an operator; null while they can. */
  problem(): string | null;
  /** How many lines were lost because memory had no room for them. */
  lost(): number;
  /** How many bytes another process has written to the file. */
  foreignBytes(): number;
  /** Bytes that wait to be written. */
  heldBytes(): number;
  /**
   * Whether the log's file system has less space than is reserved for lines that must not be lost. Absent: not checked.
   */
  hasOnlyReserve?(): boolean;
  /** State of the signed checkpoints; null or absent when none are signed. */
  checkpoints?(): CheckpointStatus | null;
  /** Registers a callback that writes the last lines before the log ends. Absent: the owner does that. */
  beforeEnd?(callback: () => void): void;
  /** Writes the held lines as far as the timeout allows. */
  close(timeoutMilliseconds: number): Promise<void>;
}
