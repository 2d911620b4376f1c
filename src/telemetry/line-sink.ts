import type { CheckpointFigures } from './checkpoint-log.js';

/** Somewhere to append JSON lines to, without ever waiting for it. */
export interface LineSink {
  /** Takes a line: the text of a JSON object whose last member is `event`. */
  write(line: string): void;
  /** Why lines are not getting out, in words for an operator; null while they are. */
  problem(): string | null;
  /** How many lines had no room and are gone for good. */
  lost(): number;
  /** How many bytes something else has put into the file meanwhile. */
  foreignBytes(): number;
  /** Bytes that wait to be written. */
  heldBytes(): number;
  /** Whether the log's file system has less room than is reserved for what must not be lost. Left out: that is not looked at. */
  hasOnlyReserve?(): boolean;
  /** What has become of the signed checkpoints; null, or left out, where none are signed. */
  checkpoints?(): CheckpointFigures | null;
  /** Has something called back before the log ends, for the lines that it still has to write. Left out: the owner sees to that. */
  beforeEnd?(callback: () => void): void;
  /** Writes out what is still in memory, as far as that is possible within the time. */
  close(timeoutMilliseconds: number): Promise<void>;
}
