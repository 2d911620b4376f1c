import { OperatorError } from '../config/operator-error.js';
import type { LogSecret } from '../telemetry/chain.js';
import { ChainCheck, hintsOf, type Verdict } from './chain-check.js';
import { type Finding, Findings, type Place, placeText, rangeText } from './finding.js';
import { type GivenLog, GivenLogs } from './given-logs.js';
import type { RawLine } from './log-lines.js';
import { type Checkpoint, mayBeginLine, parseSealedLine, type SealedLine } from './sealed-line.js';
import type { SignedRuns } from './signed-runs.js';

/** What is known beforehand of the log that is verified. */
export interface VerifierOptions {
  /** The log's secrets, newest first; empty: the chain is looked at without one. */
  readonly secrets: readonly LogSecret[];
  /** The last process may still be running, so that its chain has no end yet. */
  readonly running: boolean;
  /** The lines are a part of a log, which may begin anywhere. */
  readonly partial: boolean;
  /** The signed checkpoints, all of which were taken; null or left out: none were given. */
  readonly signed?: SignedRuns | null;
}

const mostChains = 100_000;
/** A chain whose newest checkpoint is so much older than that of another one runs no more. */
const silentMilliseconds = 180_000;

/** Verifies a log, line by line, in bounded memory. */
export class Verifier {
  readonly #options: VerifierOptions;
  readonly #chains = new Map<string, ChainCheck>();
  readonly #findings = new Findings();
  readonly #notes: string[] = [];
  readonly #logs = new GivenLogs();
  #lines = 0;
  #requests = 0;
  #file: string | null = null;
  /** When the newest checkpoint of all chains was written, in milliseconds since 1970. */
  #newestAt = 0;
  /** Whether the first chain was written to a file; null while none began. */
  #inFile: boolean | null = null;
  /** The chains in the order in which they began, without those that were proved when that was looked at. */
  readonly #unproved: ChainCheck[] = [];
  /** The beginnings of files that go on from another one, which may be given behind them. */
  readonly #continuations: { readonly checkpoint: Checkpoint; readonly place: Place }[] = [];
  /** The chain of the very first line: of it a part of a log may have that line alone, where another begins behind it. */
  #leading: ChainCheck | null = null;

  constructor(options: VerifierOptions) {
    this.#options = { ...options, secrets: options.secrets.length === 0 ? [null] : options.secrets };
  }

  /** @throws OperatorError where the log is under a secret and none is given */
  take({ file, number, bytes, ended }: RawLine): void {
    this.#lines += 1;
    const place = { file, line: number };
    const isFirstOfFile = file !== this.#file;
    this.#file = file;
    const line = bytes === null ? null : parseSealedLine(bytes);
    this.#requests += line?.requests ?? 0;
    const torn = line?.checkpoint?.predecessor?.torn ?? 0;
    const log = this.#logs.of(file, line);
    this.#judgeUnfinished(log, false);
    this.#judgeFragment(log, torn, place);
    if (!ended) {
      const finding: Finding = { ...place, kind: 'truncated', message: 'the file ends within this line' };
      log.unfinished.push({ finding, note: 'a line that has no end yet: the gateway may be writing it' });
    }
    if (line?.checkpoint?.algorithm === 'hmac-sha256' && this.#options.secrets[0] === null) {
      throw new OperatorError('The log is under a secret: name its file with --secret-file, or --config.');
    }
    if (line === null) {
      const mayBegin = bytes !== null && mayBeginLine(bytes);
      log.fragment = { place, bytes: bytes?.length ?? Infinity, mayBegin, ended };
      return;
    }
    const chain = this.#chains.get(line.id) ?? this.#begin(line, place, isFirstOfFile && log.newest === null);
    const isProved = chain.check(line, place);
    const unlike = this.#options.signed?.compare(line.id, line.sequence, line.hash) ?? null;
    if (unlike !== null) this.#findings.report({ ...place, ...unlike });
    log.newest = chain.newest;
    if (this.#lines === 1) this.#leading = chain;
    else if (this.#lines === 2 && !(isProved && this.#mayFollowLeading(line))) this.#leading = null;
    // What a line says is only believed when it is proved: a changed one would accuse others.
    if (isProved && line.checkpoint !== null)
      this.#newestAt = Math.max(this.#newestAt, Date.parse(line.checkpoint.at) || 0);
    if (isProved && line.sequence === 1 && line.checkpoint !== null) {
      if (line.checkpoint.reason === 'file-start') this.#continuations.push({ checkpoint: line.checkpoint, place });
      else this.#judgePredecessor(line.checkpoint, place, isFirstOfFile);
    }
  }

  /** Tells that the next file has no line at all. */
  empty(file: string): void {
    const message = 'the file is empty, and a log begins with a checkpoint';
    const finding: Finding = { file, line: 1, kind: 'truncated', message };
    this.#logs
      .of(file, null)
      .unfinished.push({ finding, note: 'the file is empty: the gateway may not yet have gone on in it' });
  }

  /** Says what was found, when every line was taken; or not all, where a chain may go on in what cannot be read. */
  end(areAll = true): Verdict {
    for (const log of this.#logs.all) {
      this.#judgeUnfinished(log, this.#options.running && this.#lines > 0);
      this.#judgeFragment(log, 0, null);
    }
    for (const { checkpoint, place } of this.#continuations) this.#judgePredecessor(checkpoint, place, true);
    for (const chain of this.#chains.values()) this.#judgeEnd(chain, areAll);
    const chains = [...this.#chains.values()];
    this.#judgeSignatures(chains, areAll);
    const { signed = null } = this.#options;
    return {
      intact: this.#findings.count === 0,
      lines: this.#lines,
      requests: this.#requests,
      chains,
      proofs: signed && chains.map(({ id, lines }) => signed.proofOf(id, lines)),
      findings: this.#findings.kept,
      findingCount: this.#findings.count,
      notes: [...this.#notes, ...hintsOf(this.#findings.kept, chains)],
    };
  }

  #begin(line: SealedLine, place: Place, isFirst: boolean): ChainCheck {
    if (this.#chains.size >= mostChains) this.#forgetOne();
    const { secrets } = this.#options;
    if (line.checkpoint?.algorithm === 'sha256' && secrets[0] !== null) {
      const message = 'a chain begins that was made without the secret, as anybody could make it';
      this.#findings.report({ ...place, kind: 'unkeyed', message });
    }
    const reason = line.checkpoint?.reason;
    const begins = line.sequence === 1 && (reason === 'start' || reason === 'file-start');
    if (!begins && line.checkpoint?.reason === 'file-start' && isFirst) {
      this.#notes.push(`${placeText(place)}: goes on from an earlier file, which is not given: ${before(line)}`);
    } else if (!begins && this.#options.partial) {
      this.#notes.push(`${placeText(place)}: a part of a log begins here: ${before(line)}`);
    } else if (!begins) {
      this.#findings.report({ ...place, kind: 'headless', message: `${before(line)} should stand before` });
    }
    const chain = new ChainCheck(line, secrets, (finding) => {
      this.#findings.report(finding);
    });
    this.#chains.set(line.id, chain);
    this.#unproved.push(chain);
    return chain;
  }

  /**
   * Makes room for another chain. An attacker can fill the memory with made-up chains, so chains that nothing proves are reported and
   * dropped first.
   */
  #forgetOne(): void {
    const claimed = this.#unproved.splice(0, 1 + this.#unproved.findIndex(({ proved }) => proved === 0)).at(-1);
    const chain = claimed ?? this.#chains.values().next().value;
    if (chain === undefined) return;
    this.#judgeEnd(chain, true);
    this.#chains.delete(chain.id);
  }

  #mayFollowLeading({ sequence, checkpoint }: SealedLine): boolean {
    const named = checkpoint?.predecessor?.id ?? null;
    return sequence === 1 && (named === null || named === this.#leading?.id);
  }

  /** The line of another process must stand before a start that names it, and nothing before one that found no line. */
  #judgePredecessor({ predecessor, reason }: Checkpoint, place: Place, isFirstOfFile: boolean): void {
    const inFile = predecessor !== undefined;
    if (this.#inFile !== null && this.#inFile !== inFile) {
      const message = `a chain begins here that was written to ${inFile ? 'a file' : 'standard output'}, unlike the ones before`;
      this.#findings.report({ ...place, kind: 'foreign', message });
    }
    this.#inFile ??= inFile;
    if (predecessor === undefined || predecessor === null) {
      if (predecessor === null && !isFirstOfFile) this.#judgeEmptyBefore(place);
      return;
    }
    const { id, sequence, hash } = predecessor;
    if (id === null || sequence === null) return;
    const chain = this.#chains.get(id);
    const newest = chain?.newest;
    if (chain === undefined || newest === undefined || newest === null) {
      if (this.#options.partial) return;
      if (reason === 'file-start') {
        this.#notes.push(`${placeText(place)}: goes on from the chain ${id} in an earlier file, which is not given`);
        return;
      }
      const message = `${rangeText({ from: 1, to: sequence })} of the chain ${id} should stand before`;
      this.#findings.report({ ...place, kind: 'missing', message });
    } else if (newest.sequence < sequence) {
      const message = `${rangeText({ from: newest.sequence + 1, to: sequence })} of the chain ${id} should stand before`;
      this.#findings.report({ ...place, kind: 'missing', message });
      chain.closed = true;
    } else if (newest.sequence === sequence) {
      if (newest.hash !== hash) {
        const message = `line ${sequence} of its chain is not what the next process found`;
        this.#findings.report({ ...newest.place, kind: 'edited', message });
      }
      chain.closed = true;
    }
  }

  /** A stream may be several files, and a part of a log may be put together of several. */
  #judgeEmptyBefore(place: Place): void {
    if (place.file === '-' || this.#options.partial) {
      this.#notes.push(`${placeText(place)}: a new file begins here, where files were put together`);
      return;
    }
    const message = 'a process that found an empty file begins here: what stands before was put there later';
    this.#findings.report({ ...place, kind: 'foreign', message });
  }

  #judgeUnfinished(log: GivenLog, isGoingOn: boolean): void {
    if (log.unfinished.length === 0) return;
    for (const { finding, note } of log.unfinished) {
      if (isGoingOn) this.#notes.push(`${placeText(finding)}: ${note}`);
      else this.#findings.report(finding);
    }
    log.unfinished = [];
  }

  #judgeFragment(log: GivenLog, torn: number, next: Place | null): void {
    const { fragment } = log;
    log.fragment = null;
    // Its length alone proves nothing: a whole line that was put there while no process ran has it too.
    if (fragment?.mayBegin === true && torn > 0 && fragment.bytes === torn) {
      this.#notes.push(
        `${placeText(fragment.place)}: what a process had begun to write when it was killed; its line is lost`,
      );
    } else if (fragment?.mayBegin === true && !fragment.ended && next === null && this.#options.running) {
      return; // what is told of it as an unfinished line is all that is known
    } else if (fragment !== null) {
      const message = 'no line of a chain: it was put here, or damaged';
      this.#findings.report({ ...fragment.place, kind: 'foreign', message });
    } else if (torn > 0 && next !== null && !this.#options.partial) {
      this.#findings.report({
        ...next,
        kind: 'missing',
        message: `${torn} bytes of a broken line should stand before`,
      });
    }
  }

  #judgeEnd(chain: ChainCheck, areAll: boolean): void {
    const { newest } = chain;
    if (chain.lost > 0)
      this.#notes.push(`the chain ${chain.id} tells of lines that had no room and were lost: ${chain.lost}`);
    if (chain.next !== null && !this.#chains.has(chain.next) && newest !== null)
      this.#notes.push(
        `${placeText(newest.place)}: the chain ${chain.id} goes on as ${chain.next} in another file, which is not given`,
      );
    if (newest === null || chain.closed) return;
    // Without the secret anybody can make such a line: what is behind it would have to go on from its hash.
    if (areAll && chain.unchecked === chain.lines && chain !== this.#leading) {
      const message = `no line of the chain ${chain.id} goes on from here, and no process names it: nothing proves it`;
      this.#findings.report({ ...newest.place, kind: 'foreign', message });
      return;
    }
    const where = `${placeText(newest.place)}: the chain ${chain.id}`;
    if (!areAll) this.#notes.push(`${where} may go on in what was not read`);
    else if (chain.goesOn && this.#logs.all.some((log) => log.newest === newest))
      this.#notes.push(`${where} goes on in another file, which is not given`);
    else if (this.#options.running && this.#mayRun(chain))
      this.#notes.push(`${where} has no end yet: whether lines behind it are gone cannot be told`);
    else {
      const message = `its chain ends here without a checkpoint of its end: lines behind it are cut off, or its process was killed or still runs`;
      this.#findings.report({ ...newest.place, kind: 'truncated', message });
    }
  }

  /** A process that runs writes a checkpoint each minute. */
  #mayRun({ lastCheckpointAt }: ChainCheck): boolean {
    return lastCheckpointAt === null || this.#newestAt - Date.parse(lastCheckpointAt) <= silentMilliseconds;
  }

  #judgeSignatures(chains: readonly ChainCheck[], areAll: boolean): void {
    const { signed = null, partial } = this.#options;
    if (signed !== null) {
      this.#notes.push(...signed.notes);
      for (const finding of signed.judge(chains, areAll && !partial)) this.#findings.report(finding);
    } else if (chains.some(({ isTree }) => isTree)) {
      this.#notes.push('without signed checkpoints a chain shows accidents alone: give --checkpoints and --public-key');
    }
  }
}

function before({ sequence, id }: SealedLine): string {
  return sequence === 1
    ? `the beginning of the chain ${id}`
    : `${rangeText({ from: 1, to: sequence - 1 })} of the chain ${id}`;
}
