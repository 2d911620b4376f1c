import { OperatorError } from '../config/operator-error.js';
import type { LogSecret } from '../telemetry/chain.js';
import { ChainCheck, type LineHashes, lineHashesOf, type Verdict } from './chain-check.js';
import { counted, type Finding, Findings, linesBefore, type Position, positionText, rangeText } from './finding.js';
import { type GivenLog, GivenLogs, harmlessReason } from './given-logs.js';
import { hintsOf, KnownChains } from './known-chains.js';
import type { RawLine } from './log-lines.js';
import { type Checkpoint, mayBeginLine, parseSealedLine, type SealedLine } from './sealed-line.js';
import type { SignedRuns } from './signed-runs.js';

/** Options for the verification of a log. */
export interface VerifierOptions {
  /** The secrets of the log, newest first. Empty if the lines are hashed without a secret. */
  readonly secrets: readonly LogSecret[];
  /** Whether the last process may still be running. If so, its chain is allowed to lack an end checkpoint. */
  readonly running: boolean;
  /** Whether the input is only a part of a log. Such a part can begin at any line of the log. */
  readonly partial: boolean;
  /** The signed checkpoints; null or omitted without checkpoints. The caller must have called their method `link`. */
  readonly signed?: SignedRuns | null;
  /** Whether the gateway is configured to sign checkpoints. If so, `secrets` are for earlier chains only. */
  readonly signsCheckpoints?: boolean;
  /** When the log was read, in ms since 1970. A process without a checkpoint in the last 180 s counts as ended. */
  readonly asOf?: number;
}

/** A running process writes a checkpoint every minute. After this time without a checkpoint, it counts as ended. */
const silentMilliseconds = 180_000;

/** Verifies a log line by line, in bounded memory. */
export class Verifier {
  readonly #options: VerifierOptions;
  readonly #hashes: LineHashes;
  readonly #hasSecret: boolean;
  readonly #chains = new KnownChains<ChainCheck>();
  readonly #findings = new Findings();
  readonly #notes: string[] = [];
  readonly #logs = new GivenLogs();
  #lines = 0;
  #requests = 0;
  #file: string | null = null;
  /** Time of the newest checkpoint with a correct hash in any chain, in ms since 1970; 0 before the first. */
  #newestAt = 0;
  /** Whether the chains were written to a file and not to standard output; null before the first chain. */
  #inFile: boolean | null = null;
  /** Start checkpoints of files that continue another file. `end` checks them: the other file can come later. */
  readonly #continuations: { readonly checkpoint: Checkpoint; readonly place: Position }[] = [];
  /**
   * The chain of line 1 if line 2 begins the next chain; otherwise null. Line 1 is then the end of this chain, so it is
   * no problem that no later line confirms the chain.
   */
  #leading: ChainCheck | null = null;

  constructor(options: VerifierOptions) {
    this.#options = options;
    this.#hashes = lineHashesOf(options.secrets);
    this.#hasSecret = options.secrets.some((secret) => secret !== null);
  }

  /** Verifies the next line. @throws OperatorError if only a secret could prove the log, but no secret was given */
  take({ file, number, bytes, ended }: RawLine): void {
    this.#lines += 1;
    const place = { file, line: number };
    const isFirstOfFile = file !== this.#file;
    this.#file = file;
    const line = bytes === null ? null : parseSealedLine(bytes);
    this.#requests += line?.requests ?? 0;
    const log = this.#logs.of(file, line);
    this.#judgeUnfinished(log, false);
    this.#judgeFragment(log, line?.checkpoint?.predecessor?.torn ?? null, place, bytes);
    if (!ended) {
      const finding: Finding = { ...place, kind: 'truncated', message: 'the file ends in the middle of this line' };
      log.unfinished.push({ finding, note: 'incomplete line: the gateway may still be writing it' });
    }
    const { signed = null } = this.#options;
    if (line?.checkpoint?.algorithm === 'hmac-sha256' && !this.#hasSecret && signed === null)
      throw new OperatorError('The log is hashed with a secret: name the secret file with --secret-file or --config.');
    if (line === null) {
      log.fragment = { place, bytes, mayBegin: bytes !== null && mayBeginLine(bytes), ended };
      return;
    }
    const chain = this.#chains.get(line.id) ?? this.#begin(line, place, isFirstOfFile && log.newest === null);
    const isProved = chain.check(line, place);
    const unlike = signed?.compare(line.id, line.sequence, line.hash) ?? null;
    if (unlike !== null) this.#findings.reportSigned({ ...place, ...unlike });
    log.newest = chain.newest;
    if (this.#lines === 1) this.#leading = chain;
    else if (this.#lines === 2 && !(isProved && this.#mayFollowLeading(line))) this.#leading = null;
    // Only lines with a correct hash are trusted. A changed line could otherwise cause findings in other chains.
    if (!isProved || line.checkpoint === null) return;
    this.#newestAt = Math.max(this.#newestAt, Date.parse(line.checkpoint.at) || 0);
    const rewritten = signed?.compareWitnessed(line.checkpoint, place) ?? null;
    if (rewritten !== null) this.#findings.reportSigned({ ...place, ...rewritten });
    if (line.sequence !== 1) return;
    if (line.checkpoint.reason === 'file-start') this.#continuations.push({ checkpoint: line.checkpoint, place });
    else this.#judgePredecessor(line.checkpoint, place, isFirstOfFile);
  }

  /** Reports a file without lines. */
  empty(file: string): void {
    const message = 'the file is empty, but each file of a log begins with a checkpoint';
    const finding: Finding = { file, line: 1, kind: 'truncated', message };
    const note = 'the file is empty: the gateway may not have written to it yet';
    this.#logs.of(file, null).unfinished.push({ finding, note });
  }

  /**
   * Returns the result of the verification. Call it after the last line.
   * @param areAll false if a file could not be read to its end, so that chains could continue in the unread part
   */
  end(areAll = true): Verdict {
    for (const log of this.#logs.all) {
      this.#judgeUnfinished(log, this.#options.running && this.#lines > 0);
      this.#judgeFragment(log, null, null, null);
    }
    for (const { checkpoint, place } of this.#continuations) this.#judgePredecessor(checkpoint, place, true);
    const chains = [...this.#chains.values()];
    for (const chain of chains) this.#judgeEnd(chain, areAll);
    this.#judgeSignatures(chains, areAll);
    return {
      intact: this.#findings.count === 0,
      lines: this.#lines,
      requests: this.#requests,
      chains,
      proofs: this.#options.signed?.proofs(chains) ?? null,
      findings: this.#findings.kept,
      findingCount: this.#findings.count,
      notes: [...this.#notes, ...hintsOf(this.#findings.kept, chains, this.#hasSecret)],
    };
  }

  #begin(line: SealedLine, place: Position, isFirst: boolean): ChainCheck {
    if (line.checkpoint?.algorithm === 'sha256' && this.#hasSecret) {
      const message = 'the chain that begins here is hashed without the secret, so anyone could have forged it';
      this.#findings.report({ ...place, kind: 'unkeyed', message });
    }
    const reason = line.checkpoint?.reason;
    const begins = line.sequence === 1 && (reason === 'start' || reason === 'file-start');
    if (!begins && line.checkpoint?.reason === 'file-start' && isFirst) {
      this.#notes.push(`${positionText(place)}: an earlier file was not given; it contains ${linesBefore(line)}`);
    } else if (!begins && this.#options.partial) {
      this.#notes.push(`${positionText(place)}: this partial log lacks ${linesBefore(line)}`);
    } else if (!begins) {
      const message = `before this line, the log lacks ${linesBefore(line)}: give all files of the log, oldest first`;
      this.#findings.report({ ...place, kind: 'headless', message });
    }
    const isSigned = this.#options.signed?.has(line.id) === true;
    // The lines of a signed chain are leaves of a Merkle tree. Do not rely on the first line here: it could be forged.
    const hashes = isSigned ? { ...this.#hashes, given: [this.#hashes.tree] } : this.#hashes;
    const chain = new ChainCheck(line, hashes, (finding) => {
      this.#findings.report(finding);
    });
    const evicted = this.#chains.add(chain, isSigned);
    if (evicted !== null) {
      this.#judgeEnd(evicted, true);
      this.#chains.evict(evicted);
    }
    return chain;
  }

  #mayFollowLeading({ sequence, checkpoint }: SealedLine): boolean {
    const named = checkpoint?.predecessor?.id ?? null;
    return sequence === 1 && (named === null || named === this.#leading?.id);
  }

  /**
   * Verifies what a start checkpoint states about the log before it. If it states the last line of the previous
   * process, that line must precede it. If it states that the file was empty, it must be the first line of its file.
   */
  #judgePredecessor({ predecessor, reason }: Checkpoint, place: Position, isFirstOfFile: boolean): void {
    const inFile = predecessor !== undefined;
    if (this.#inFile !== null && this.#inFile !== inFile) {
      const message = `the chain that begins here was written to ${inFile ? 'a file' : 'standard output'}, unlike the chains before it: the chain is from another log, or was inserted`;
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
        this.#notes.push(`${positionText(place)}: an earlier file, which contains the chain ${id}, was not given`);
        return;
      }
      const message = `before this line, the log lacks ${rangeText({ from: 1, to: sequence })} of the chain ${id}`;
      this.#findings.report({ ...place, kind: 'missing', message });
    } else if (newest.sequence < sequence) {
      const message = `before this line, the log lacks ${rangeText({ from: newest.sequence + 1, to: sequence })} of the chain ${id}`;
      this.#findings.report({ ...place, kind: 'missing', message });
      chain.closed = true;
    } else if (newest.sequence === sequence) {
      if (newest.hash !== hash) {
        const message = `line ${sequence} of the chain was changed: its hash is not the hash that the next process found`;
        this.#findings.report({ ...newest.place, kind: 'edited', message });
      }
      chain.closed = true;
    }
  }

  /**
   * Reports a start checkpoint that claims an empty file, although other lines precede it in the file. Standard input
   * and a partial log can be several concatenated files, so they get only a note.
   */
  #judgeEmptyBefore(place: Position): void {
    if (place.file === '-' || this.#options.partial) {
      this.#notes.push(`${positionText(place)}: a new file begins here, so the input consists of several files`);
      return;
    }
    const message = 'this process began with an empty file, so the lines before this line were inserted later';
    this.#findings.report({ ...place, kind: 'foreign', message });
  }

  #judgeUnfinished(log: GivenLog, isGoingOn: boolean): void {
    if (log.unfinished.length === 0) return;
    for (const { finding, note } of log.unfinished) {
      if (isGoingOn) this.#notes.push(`${positionText(finding)}: ${note}`);
      else this.#findings.report(finding);
    }
    log.unfinished = [];
  }

  #judgeFragment(log: GivenLog, torn: number | null, next: Position | null, bytes: Buffer | null): void {
    const { fragment } = log;
    log.fragment = null;
    const reason = fragment && harmlessReason(fragment, bytes, torn);
    if (fragment !== null && reason !== null) {
      this.#notes.push(`${positionText(fragment.place)}: ${reason}`);
    } else if (fragment?.mayBegin === true && !fragment.ended && next === null && this.#options.running) {
      return; // `#judgeUnfinished` has already added a note about this line
    } else if (fragment !== null) {
      const message = 'this line belongs to no hash chain: it was inserted or damaged';
      this.#findings.report({ ...fragment.place, kind: 'foreign', message });
    } else if (torn !== null && torn > 0 && next !== null && !this.#options.partial) {
      const message = `when this process started, the log ended with an incomplete line of ${counted(torn, 'byte')}, which is now missing`;
      this.#findings.report({ ...next, kind: 'missing', message });
    }
  }

  #judgeEnd(chain: ChainCheck, areAll: boolean): void {
    const { newest, id, lost } = chain;
    if (lost > 0)
      this.#notes.push(
        `the gateway lost ${counted(lost, 'line')} in the chain ${id} or just before it: the gateway's memory buffer was full, or the log file was removed`,
      );
    if (chain.next !== null && !this.#chains.has(chain.next) && newest !== null)
      this.#notes.push(
        `${positionText(newest.place)}: the chain ${chain.id} continues as ${chain.next} in another file, which was not given`,
      );
    const { signed = null, signsCheckpoints = false } = this.#options;
    if (newest !== null && chain.isTree && this.#hasSecret && signed === null && !signsCheckpoints) {
      const message = `the chain ${id} is hashed without the secret, so anyone could have forged it`;
      this.#findings.report({ ...newest.place, kind: 'unkeyed', message });
    }
    if (newest === null || chain.closed || chain.lacksSecret) return;
    // No line of this chain could be verified. Anyone can write such lines without the secret. Only a later line whose
    // hash covers them would authenticate them.
    if (areAll && chain.unchecked === chain.lines && chain !== this.#leading) {
      const message = `the chain ${id} may be forged: no later line and no later process confirms it`;
      this.#findings.report({ ...newest.place, kind: 'foreign', message });
      return;
    }
    const where = `${positionText(newest.place)}: the chain ${chain.id}`;
    const end = signed !== null ? 'after its last signed line' : 'at its end';
    if (!areAll) this.#notes.push(`${where} may continue in the part that was not read`);
    else if (chain.goesOn && this.#logs.all.some((log) => log.newest === newest))
      this.#notes.push(`${where} continues in another file, which was not given`);
    else if (this.#options.running && this.#mayRun(chain))
      this.#notes.push(`${where} has not ended yet: missing lines ${end} cannot be detected`);
    else {
      const message =
        'the chain has no end checkpoint: later lines were removed, or the gateway was killed or still runs';
      this.#findings.report({ ...newest.place, kind: 'truncated', message });
    }
  }

  /** Whether the process of a chain could be running. A running process writes a checkpoint every minute. */
  #mayRun({ lastCheckpointAt }: ChainCheck): boolean {
    const { signed, asOf = -Infinity } = this.#options;
    const latest = Math.max(this.#newestAt, asOf, signed?.newestAt ?? -Infinity);
    return lastCheckpointAt === null || latest - Date.parse(lastCheckpointAt) <= silentMilliseconds;
  }

  #judgeSignatures(chains: readonly ChainCheck[], areAll: boolean): void {
    const { signed = null, partial } = this.#options;
    if (signed !== null) {
      for (const finding of signed.judge(chains, areAll && !partial)) this.#findings.reportSigned(finding);
      this.#notes.push(...signed.notes);
    } else if (chains.some(({ isTree }) => isTree)) {
      this.#notes.push(
        'without signed checkpoints, the chain detects accidental damage but not attacks: add --checkpoints and --public-key',
      );
    }
  }
}
