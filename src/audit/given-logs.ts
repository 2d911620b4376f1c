import type { ChainCheck } from './chain-check.js';
import type { Finding, Position } from './finding.js';
import type { SealedLine } from './sealed-line.js';

/** A line that does not belong to a hash chain. */
interface Fragment {
  readonly place: Position;
  readonly bytes: number;
  /** Whether the fragment could be the beginning of a line that was not written completely. */
  readonly mayBegin: boolean;
  /** Whether the fragment ends with a line end. */
  readonly ended: boolean;
}

/** One of the logs that are verified together. It can consist of several files, oldest first. */
export interface GivenLog {
  /** The newest line of this log that belongs to a hash chain; null before the first one. */
  newest: ChainCheck['newest'];
  /**
   * Incomplete lines at the end of the newest files. They become notes (harmless) if a gateway could be writing these
   * files at present. Otherwise, or if another line follows, they become findings (defects).
   */
  unfinished: { readonly finding: Finding; readonly note: string }[];
  /**
   * The newest line if it belongs to no chain, otherwise null. It can be an incomplete line that a killed process left.
   */
  fragment: Fragment | null;
}

function newLog(): GivenLog {
  return { newest: null, unfinished: [], fragment: null };
}

const rotation = /(?:\.\d+|-\d{8,})?(?:\.gz)?$/;
const workerLog = /\.\d+\.[^./\d][^./]*$/;

/**
 * Assigns each file to a log. Each worker process has its own log, and the files of several workers can be verified
 * together.
 */
export class GivenLogs {
  readonly #ofWorkers = new Map<string, GivenLog>();
  #present = newLog();
  #file: string | null = null;
  #worker: string | null = null;
  #newest: SealedLine | null = null;
  readonly all: GivenLog[] = [this.#present];

  /**
   * Returns the log to which the next line of a file belongs.
   * @param line null if the file is empty or the line belongs to no hash chain; in that case, the file name decides
   */
  of(file: string, line: SealedLine | null): GivenLog {
    if (line === null) return this.#ofWorkers.get(workerOf(file) ?? '') ?? this.#present;
    if (file !== this.#file) this.#begin(file, line);
    this.#newest = line;
    return this.#present;
  }

  #begin(file: string, line: SealedLine): void {
    this.#file = file;
    const worker = workerOf(file);
    const known = worker === null ? undefined : this.#ofWorkers.get(worker);
    if (known !== undefined) this.#present = known;
    else if (worker !== null && this.#worker !== null && this.#wasWrittenMeanwhile(line)) {
      this.#present = newLog();
      this.all.push(this.#present);
    }
    this.#worker = worker;
    if (worker !== null) this.#ofWorkers.set(worker, this.#present);
  }

  /**
   * Whether a file began before the last line of the previous file was written. If so, another worker process wrote it,
   * because a worker writes its files one after the other. The file name does not show this: rotated files of one log
   * can have names like those of workers.
   */
  #wasWrittenMeanwhile({ checkpoint }: SealedLine): boolean {
    return checkpoint !== null && this.#newest !== null && checkpoint.at < timeOf(this.#newest);
  }
}

/**
 * Returns the worker's log file name: `access.2.log` for `access.2.log.1.gz`; null if the name contains no worker
 * number.
 */
function workerOf(file: string): string | null {
  const name = file.replace(rotation, '');
  return workerLog.test(name) ? name : null;
}

/**
 * Number of bytes at the beginning of a line that are searched for its timestamp. They suffice even if the service and
 * the machine have long names.
 */
const headBytes = 1_024;

function timeOf({ bytes }: SealedLine): string {
  return /^\{"service":\{.*?\},"@timestamp":"([^"]{1,40})"/.exec(bytes.toString('latin1', 0, headBytes))?.[1] ?? '';
}
