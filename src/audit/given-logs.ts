import type { ChainCheck } from './chain-check.js';
import type { Finding, Place } from './finding.js';
import type { SealedLine } from './sealed-line.js';

/** A line of a file that is none of a chain. */
interface Fragment {
  readonly place: Place;
  readonly bytes: number;
  /** Whether it may be the beginning of a line that was not written to its end. */
  readonly mayBegin: boolean;
  /** Whether a line end stands behind it. */
  readonly ended: boolean;
}

/** One of the logs whose files are given, of which each file goes on from the one before. */
export interface GivenLog {
  /** The newest line of the chain that its newest line is of; null while it has none. */
  newest: ChainCheck['newest'];
  /** What its newest files end with: findings, unless nothing follows and the gateway still writes. */
  unfinished: { readonly finding: Finding; readonly note: string }[];
  /** Its newest line, where that is none of a chain: a process that was killed may have left it. */
  fragment: Fragment | null;
}

function newLog(): GivenLog {
  return { newest: null, unfinished: [], fragment: null };
}

const rotation = /(?:\.\d+|-\d{8,})?(?:\.gz)?$/;
const workerLog = /\.\d+\.[^./\d][^./]*$/;

/** Tells the logs of several workers apart, whose files are given together. */
export class GivenLogs {
  readonly #ofWorkers = new Map<string, GivenLog>();
  #present = newLog();
  #file: string | null = null;
  #worker: string | null = null;
  #newest: SealedLine | null = null;
  readonly all: GivenLog[] = [this.#present];

  /** The log of a file's next line. Null is no line of a chain, or none at all: then the file's name alone tells. */
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

  /** A name alone proves nothing, as rotation can give such names to one log; its files are not written at the same time. */
  #wasWrittenMeanwhile({ checkpoint }: SealedLine): boolean {
    return checkpoint !== null && this.#newest !== null && checkpoint.at < timeOf(this.#newest);
  }
}

/** By its name, which worker's log a file is of (`access.2.log.1.gz` of `access.2.log`); null where it names none. */
function workerOf(file: string): string | null {
  const name = file.replace(rotation, '');
  return workerLog.test(name) ? name : null;
}

/** The time of a line stands within so many bytes, behind the names of the service and of the machine. */
const headBytes = 1_024;

function timeOf({ text }: SealedLine): string {
  return /^\{"service":\{.*?\},"@timestamp":"([^"]{1,40})"/.exec(text.toString('latin1', 0, headBytes))?.[1] ?? '';
}
