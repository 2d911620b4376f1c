import type { ChainCheck } from './chain-check.js';
import type { Finding, Position } from './finding.js';
import type { SealedLine } from './sealed-line.js';

/** A line that is not a line of a chain. */
interface Fragment {
  readonly place: Position;
  readonly bytes: number;
  /** Whether it may be the first part of an incomplete line. */
  readonly mayBegin: boolean;
  /** Whether it ends with a line end. */
  readonly ended: boolean;
}

/** One of the given logs. Each of its files continues the file before it. */
export interface GivenLog {
  /** Its newest chain line; null before the first one. */
  newest: ChainCheck['newest'];
  /** Incomplete ends of its newest files: notes if the gateway still writes and nothing follows, otherwise findings. */
  unfinished: { readonly finding: Finding; readonly note: string }[];
  /** Its newest line if that is not a line of a chain: a killed process may have left an incomplete line. */
  fragment: Fragment | null;
}

function newLog(): GivenLog {
  return { newest: null, unfinished: [], fragment: null };
}

const rotation = /(?:\.\d+|-\d{8,})?(?:\.gz)?$/;
const workerLog = /\.\d+\.[^./\d][^./]*$/;

/** Separates the logs of several workers whose files are given together. */
export class GivenLogs {
  readonly #ofWorkers = new Map<string, GivenLog>();
  #present = newLog();
  #file: string | null = null;
  #worker: string | null = null;
  #newest: SealedLine | null = null;
  readonly all: GivenLog[] = [this.#present];

  /** The log of a file's next line. @param line null for an empty file or a line of no chain: the file name decides */
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
   * Whether a file was written at the same time as the newest line. Its name is not enough: rotation can give one log
   * names like those of workers, but the files of one log are never written at the same time.
   */
  #wasWrittenMeanwhile({ checkpoint }: SealedLine): boolean {
    return checkpoint !== null && this.#newest !== null && checkpoint.at < timeOf(this.#newest);
  }
}

/** The worker log of a file by its name: `access.2.log` for `access.2.log.1.gz`; null if the name has no worker. */
function workerOf(file: string): string | null {
  const name = file.replace(rotation, '');
  return workerLog.test(name) ? name : null;
}

/** The timestamp of a line is within this many bytes, after the names of the service and of the machine. */
const headBytes = 1_024;

function timeOf({ bytes }: SealedLine): string {
  return /^\{"service":\{.*?\},"@timestamp":"([^"]{1,40})"/.exec(bytes.toString('latin1', 0, headBytes))?.[1] ?? '';
}
