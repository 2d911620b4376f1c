import { LineHash, type LogSecret, treeAlgorithm } from '../telemetry/chain.js';
import { counted, type Finding, type Position, rangeText } from './finding.js';
import type { SealedLine } from './sealed-line.js';

interface Range {
  readonly from: number;
  readonly to: number;
}

/** The hash functions that the lines of a log may use. */
export interface LineHashes {
  /** One per secret of the log; plain SHA-256 without a secret. */
  readonly given: readonly LineHash[];
  readonly plain: LineHash;
  readonly tree: LineHash;
}

/** The hash functions for the given secrets. @param secrets newest first; may be empty */
export function lineHashesOf(secrets: readonly LogSecret[]): LineHashes {
  const plain = new LineHash(null);
  const given = secrets.length === 0 ? [plain] : secrets.map((secret) => new LineHash(secret));
  return { given, plain, tree: new LineHash(treeAlgorithm) };
}

/** Limit of the gap list: it bounds memory and the time per line, even for a log full of gaps. */
const mostGaps = 1_000;

/** Checks one chain of a log, line by line, in the order of the files. */
export class ChainCheck {
  readonly id: string;
  /** The newest line: the number and the hash that it states, and its position. */
  newest: { readonly sequence: number; readonly hash: string; readonly place: Position } | null = null;
  /** Whether the newest line is known to be the last: it states so itself, or the next process does. */
  closed = false;
  /** Whether its last line states that the chain continues in another file. */
  goesOn = false;
  /** The id of the chain in the next file, if the last line names one; otherwise null. */
  next: string | null = null;
  lines = 0;
  /** Lines whose previous hash is unknown. Their own hash only serves as the start for the next line. */
  unchecked = 0;
  /** Lines whose hash matches; `edited` counts lines whose hash does not. */
  proved = 0;
  edited = 0;
  lost = 0;
  lastCheckpointAt: string | null = null;
  /** The number of findings in this chain. */
  reported = 0;
  /** Candidate hash functions; only one after the first matching line. */
  #hashes: readonly LineHash[];
  /** Candidate hashes of the newest line: empty if unknown, several if that line was edited. */
  #previous: readonly string[] = [];
  #expected: number;
  #gaps: Range[] = [];
  /** The gap list overflowed: late lines can no longer be told from repeated ones. */
  #forgotGap = false;
  /** The last gap. If a changed number caused it, the next line has the number `resume`. */
  #jump: { readonly finding: Finding; readonly resume: number } | null = null;
  readonly #onFinding: (finding: Finding) => void;

  constructor(first: SealedLine, { given, plain, tree }: LineHashes, report: (finding: Finding) => void) {
    this.id = first.id;
    this.#expected = first.sequence;
    const algorithm = first.checkpoint?.algorithm;
    if (algorithm === 'sha256') this.#hashes = [plain];
    else if (algorithm === treeAlgorithm) this.#hashes = [tree];
    else this.#hashes = algorithm === undefined ? [...given, tree] : given;
    this.#onFinding = report;
  }

  /** Whether its lines are hashed with a given secret: nobody without that secret can have made them. */
  get isUnderSecret(): boolean {
    const secret = this.#hashes[0]?.secret ?? null;
    return this.proved > 0 && secret !== null && secret !== treeAlgorithm;
  }

  /** Whether its lines are the leaves of a Merkle tree, so that they can have signed checkpoints. */
  get isTree(): boolean {
    return this.#hashes[0]?.secret === treeAlgorithm;
  }

  /**
   * Checks the next line of this chain.
   * @returns whether its hash matches and its position is right
   */
  check(line: SealedLine, place: Position): boolean {
    this.lines += 1;
    if (line.sequence < this.#expected && line.sequence !== this.#jump?.resume) {
      this.#late(line, place);
      return false;
    }
    if (line.sequence < this.#expected) this.#undoJump(line.sequence);
    else if (line.sequence > this.#expected) this.#jumpTo(line, place);
    else this.#jump = null;
    const isProved = this.#checkHash(line, place);
    this.#expected = line.sequence + 1;
    this.newest = { sequence: line.sequence, hash: line.hash, place };
    this.next = line.checkpoint?.next ?? null;
    this.goesOn = line.checkpoint?.reason === 'file-end' && this.next === null;
    // A further line reopens a closed chain, no matter which line closed it.
    this.closed = line.checkpoint?.reason === 'end' || this.next !== null;
    if (line.checkpoint !== null) {
      this.lost = line.checkpoint.lost;
      this.lastCheckpointAt = line.checkpoint.at;
    }
    return isProved;
  }

  #report(finding: Finding): void {
    this.reported += 1;
    this.#onFinding(finding);
  }

  #checkHash(line: SealedLine, place: Position): boolean {
    // For the first given line and after a gap, only a checkpoint states the previous hash.
    const isKnown = this.#previous.length > 0 || line.checkpoint === null;
    const previous = isKnown ? this.#previous : [line.checkpoint.previous];
    if (previous.length === 0) {
      this.unchecked += 1;
      this.#previous = [line.hash];
      return false;
    }
    for (const hashes of this.#hashes) {
      for (const one of previous) {
        if (hashes.ofLine(one, line.bytes) !== line.hash) continue;
        if (this.#hashes.length > 1) this.#hashes = [hashes];
        this.#previous = [line.hash];
        this.proved += 1;
        return true;
      }
    }
    this.edited += 1;
    this.#report({
      ...place,
      kind: 'edited',
      message: `line ${line.sequence} of its chain was changed: its hash does not match`,
    });
    // Perhaps only the hash was changed; then the next line follows the computed hash.
    const computed = this.#hashes.map((hashes) => previous.map((one) => hashes.ofLine(one, line.bytes)));
    this.#previous = [line.hash, ...computed.flat()];
    return false;
  }

  #jumpTo(line: SealedLine, place: Position): void {
    const gap = { from: this.#expected, to: line.sequence - 1 };
    const finding: Finding = {
      ...place,
      kind: 'missing',
      message: `${rangeText(gap)} of its chain should precede this line`,
    };
    this.#report(finding);
    this.#jump = { finding, resume: this.#expected + 1 };
    this.#gaps.push(gap);
    this.#boundGaps();
    this.#previous = [];
  }

  /** The previous line has a changed number: this line has the number that follows the original one. */
  #undoJump(sequence: number): void {
    if (this.#jump !== null) {
      this.#jump.finding.kind = 'edited';
      this.#jump.finding.message = `line ${sequence - 1} of its chain was changed: its number is wrong`;
    }
    // Removes the gap that began at that line. It may be absent (full list), or late lines may have split it.
    this.#gaps = this.#gaps.filter(({ from }) => from < sequence - 1);
    this.#jump = null;
    this.#previous = this.newest === null ? [] : [this.newest.hash];
  }

  #late({ sequence }: SealedLine, place: Position): void {
    // The line at which the gap began is here, so no changed number caused the gap.
    if (this.#jump !== null && sequence === this.#jump.resume - 1) this.#jump = null;
    const at = this.#gaps.findIndex(({ from, to }) => from <= sequence && sequence <= to);
    const gap = this.#gaps[at];
    if (gap !== undefined) {
      const rest = [
        { from: gap.from, to: sequence - 1 },
        { from: sequence + 1, to: gap.to },
      ];
      this.#gaps.splice(at, 1, ...rest.filter(({ from, to }) => from <= to));
      this.#boundGaps();
    }
    if (gap === undefined && !this.#forgotGap) {
      this.#report({ ...place, kind: 'repeated', message: `line ${sequence} of its chain is repeated` });
    } else {
      this.#report({ ...place, kind: 'reordered', message: `line ${sequence} of its chain comes after later lines` });
    }
  }

  #boundGaps(): void {
    if (this.#gaps.length <= mostGaps) return;
    this.#gaps.pop();
    this.#forgotGap = true;
  }
}

/** Hints for findings that a mistake in the command line may have caused: a wrong secret or a wrong file order. */
export function hintsOf(findings: readonly Finding[], chains: readonly ChainCheck[]): string[] {
  const isLate = findings.some(({ kind }) => kind === 'repeated' || kind === 'reordered');
  return [
    ...secretHint(chains),
    ...(isLate ? ['some lines come after later lines: are the files in order, oldest first?'] : []),
  ];
}

/**
 * With a wrong secret every line of a chain looks edited. A single edited line is a hint only if no chain has a proved
 * line.
 */
function secretHint(chains: readonly ChainCheck[]): string[] {
  const isProvedAnywhere = chains.some(({ proved }) => proved > 0);
  const [first, ...more] = chains.filter(({ proved, edited }) => proved === 0 && edited > (isProvedAnywhere ? 1 : 0));
  if (first === undefined) return [];
  if (!isProvedAnywhere) return ['no line could be proved: is the secret correct?'];
  const which = `the chain ${first.id}${more.length === 0 ? '' : ` and of ${more.length} more`}`;
  return [`no line of ${which} could be proved: did it use an earlier secret? Pass that with a second --secret-file`];
}

/** How many lines of a run are proved by signatures. */
export interface RunProof {
  readonly run: string;
  /** The name of the instance that signed; null if unsigned. */
  readonly name: string | null;
  /** The last line proved by a signature, which covers all lines before it; 0 for none. */
  readonly signedTo: number;
  /** The time of that signature, in milliseconds since 1970; null if unsigned. */
  readonly signedAt: number | null;
  /** The last line covered by a receipt of the witness; 0 for none. */
  readonly witnessedTo: number;
  /** The time of that receipt, in milliseconds since 1970; null without a receipt. */
  readonly witnessedAt: number | null;
  /** The number of lines after the signed ones. */
  readonly unsigned: number;
  /** The number of signed lines that are missing at the end, or all of them if the run was removed. */
  readonly missing: number;
}

/** The result of a verification. */
export interface Verdict {
  /** Whether there are no findings. */
  readonly intact: boolean;
  readonly lines: number;
  /** The number of requests in the lines of chains; several requests may share a line. */
  readonly requests: number;
  readonly chains: readonly ChainCheck[];
  /** How many lines of each chain are proved by signatures; null if no checkpoints were given. */
  readonly proofs: readonly RunProof[] | null;
  /** The first 1,000 findings of each kind, first those from signatures, in the order of their detection. */
  readonly findings: readonly Finding[];
  /** The number of all findings. */
  readonly findingCount: number;
  /** Facts that cannot be proved but do not indicate a change. */
  readonly notes: readonly string[];
}

/** The verdict in one sentence. */
export function verdictText({ intact, lines, findingCount, proofs }: Verdict): string {
  const proof =
    proofs === null ? 'no signed checkpoints were given' : `${counted(proofs.length, 'run')} with checkpoints`;
  return `${intact ? 'Intact' : 'NOT INTACT'}: ${counted(findingCount, 'finding')} in ${counted(lines, 'line')}, ${proof}.`;
}
