import type { ChainCheck } from './chain-check.js';
import type { Finding, Position } from './finding.js';
import type { SealedLine } from './sealed-line.js';

/** A line that does not belong to a hash chain. */
interface Fragment {
  readonly place: Position;
  /** The fragment without its line end; null if it is longer than any line of a gateway. */
  readonly bytes: Buffer | null;
  /** Whether the fragment could be the beginning of a line that was not written completely. */
  readonly mayBegin: boolean;
  /** Whether the fragment ends with a line end. */
  readonly ended: boolean;
}

/** One of the logs that are verified together. It can consist of several files, oldest first. */
export interface GivenLog {
  /** The newest line of this log that belongs to a hash chain; null before the first such line. */
  newest: ChainCheck['newest'];
  /**
   * Empty files, and incomplete lines at the end of files. They are harmless if no further line of the log follows and
   * a gateway could still be writing the file; they then become notes. Otherwise they become findings (defects).
   */
  unfinished: { readonly finding: Finding; readonly note: string }[];
  /**
   * The newest line if it belongs to no chain, otherwise null. It can be an incomplete line that a killed process left.
   */
  fragment: Fragment | null;
}

/**
 * Returns why a fragment is harmless: a gateway left it as an incomplete line. Returns null if the fragment may have
 * been inserted or damaged. An attacker could insert a complete line, so the fragment must have the form of an
 * incomplete line.
 * @param next the line after the fragment; null if no line follows, or if that line is longer than any gateway's line
 * @param torn the length in bytes of the incomplete line that the next process found at its start, if `next` states
 *   this length; otherwise null
 */
export function harmlessReason({ bytes, mayBegin }: Fragment, next: Buffer | null, torn: number | null): string | null {
  if (bytes === null || bytes.length === 0 || !mayBegin) return null;
  if (torn !== null)
    return bytes.length === torn ? 'incomplete line of a process that was killed; the line is lost' : null;
  // A copy of the beginning of the next line adds nothing to the log.
  const isRepeated = next?.subarray(0, bytes.length).equals(bytes) === true;
  return isRepeated
    ? 'incomplete line after a failed write; the gateway then reopened its log file and wrote the line again, so nothing is lost'
    : null;
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
   * Returns the log to which the next line of a file belongs. If `line` is null, the worker number in the file name
   * selects the log. If no log of that worker is known, returns the log of the previous line.
   * @param line null if the file is empty or the line belongs to no hash chain
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
   * Whether a file began before the last line of the previous file was written. If so, another worker process wrote the
   * file, because a worker writes its files one after the other. The file name alone does not show this: rotated files
   * of one log can have names like those of workers.
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
