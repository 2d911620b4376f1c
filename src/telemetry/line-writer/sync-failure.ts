import type { Segment } from './segment.js';

/**
 * Minimum time for which a failed sync counts as a problem, so that operators learn of it. After this time, a further
 * line is written to find out whether the disk stores lines again.
 */
const failingMilliseconds = 1_000;

/** The file of a failed sync, and how many bytes this process had written to the file when the sync failed. */
interface Failed {
  readonly segment: Segment;
  readonly written: number;
  readonly at: number;
}

/**
 * The last failed sync to disk. The operating system reports lost bytes to one sync only. The next sync succeeds,
 * although these bytes are not on disk. So only a sync of later lines shows that the disk stores lines again.
 */
export class SyncFailure {
  /** Why syncing fails, for operators; null while it works. */
  problem: string | null = null;
  #failed: Failed | null = null;

  /** Whether a further line should be written and synced now. */
  get isRetryDue(): boolean {
    return this.#failed !== null && performance.now() - this.#failed.at >= failingMilliseconds;
  }

  /**
   * Records the result of a sync. A success counts as a failure if nothing was written since the last failure.
   * @param error null if the sync succeeded
   * @returns whether the lines that were written since the last sync of the file are on disk
   */
  record(segment: Segment, error: NodeJS.ErrnoException | null): boolean {
    const { written } = segment;
    const failed = this.#failed;
    if (error !== null) {
      this.problem = `syncing fails: ${error.code ?? error.message}`;
      this.#failed = { segment, written, at: performance.now() };
      return false;
    }
    if (failed?.segment === segment && failed.written === written) return false;
    if (this.isRetryDue) this.problem = this.#failed = null;
    return true;
  }
}
