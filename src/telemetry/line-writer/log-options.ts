import type { LogOrigin, LogSecret } from '../chain.js';
import type { CheckpointLog } from '../checkpoints/checkpoint-log.js';
import type { readFreeBytes } from '../log-file.js';

/** Options of an access log. */
export interface ChainedLogOptions {
  /** `stdout`, or the path of the file to append to. */
  readonly destination: string;
  readonly secret: LogSecret;
  readonly environment: string;
  /** Identifies the process in each line. If undefined, the lines do not identify it. */
  readonly origin?: LogOrigin;
  /**
   * Signs states of the log as checkpoints, and sends them to their destinations. The lines are then also leaves of a
   * Merkle tree. Null or undefined: no checkpoints are signed.
   */
  readonly checkpoints?: CheckpointLog | null;
  /** Returns the time in milliseconds since 1970. */
  readonly now: () => number;
  /** Called if the file was renamed or removed and no new file can be opened. Lines then go to the old file. */
  readonly onReopenFailure: (error: Error) => void;
  /** Called when a new file is written after a rotation. */
  readonly onReopened?: () => void;
  /** Called once, when another process writes to the file as well. */
  readonly onOtherWriter?: () => void;
  /** Called with the reason when writing or syncing to disk fails, and with null when it works again. */
  readonly onProblem?: (problem: string | null) => void;
  /** Free bytes of the file system that are reserved for lines that must not be lost; default 0. */
  readonly reserveBytes?: number;
  /** Called with true when fewer than `reserveBytes` are free, and with false when more are free again. */
  readonly onReserve?: (hasOnlyReserve: boolean) => void;
  /** Reads the free bytes of the file system. The default queries the operating system. */
  readonly readFreeBytes?: typeof readFreeBytes;
  /** Milliseconds between two checkpoint lines, which describe the hash chain itself; default 60,000. */
  readonly checkpointMilliseconds?: number;
  /** Milliseconds between checks for a renamed or removed file, failed writes or syncs, and free space; default 250. */
  readonly renameMilliseconds?: number;
}
