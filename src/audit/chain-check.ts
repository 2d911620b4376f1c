import { LineHash, type LogSecret, treeAlgorithm } from '../telemetry/chain.js';
import { counted, type Finding, type Position, rangeText } from './finding.js';
import type { SealedLine } from './sealed-line.js';

interface Range {
  readonly from: number;
  readonly to: number;
}

/** The hash functions that the lines of a log can use. */
export interface LineHashes {
  /** One hash function per secret of the log; plain SHA-256 if the log has no secret. */
  readonly given: readonly LineHash[];
  readonly plain: LineHash;
  readonly tree: LineHash;
}

/** Returns the hash functions for the given secrets. @param secrets newest first; may be empty */
export function lineHashesOf(secrets: readonly LogSecret[]): LineHashes {
  const plain = new LineHash(null);
  const given = secrets.length === 0 ? [plain] : secrets.map((secret) => new LineHash(secret));
  return { given, plain, tree: new LineHash(treeAlgorithm) };
}

/**
 * Maximum number of stored gaps in the line numbers. Without this limit, a forged log full of gaps could exhaust the
 * memory and slow down the check of each line.
 */
const mostGaps = 1_000;

/** Verifies one chain of a log, line by line, in the order of the files. */
export class ChainCheck {
  readonly id: string;
  /** The newest line: its position, and the number and the hash that it states. */
  newest: { readonly sequence: number; readonly hash: string; readonly place: Position } | null = null;
  /**
   * Whether the end of the chain is known. It is known if the newest line is an end checkpoint or names the next chain.
   * It is also known if the start checkpoint of the next process states the last line of this chain.
   */
  closed = false;
  /** Whether the newest line states that another file continues the chain, but does not name the next chain. */
  goesOn = false;
  /** The id of the next chain, in the next file, if the newest line names that chain; otherwise null. */
  next: string | null = null;
  lines = 0;
  /**
   * Number of lines that cannot be verified, because the hash of the previous line or the secret is unknown. The hash
   * of a line that cannot be verified is used only to verify the next line.
   */
  unchecked = 0;
  /** Number of lines with a correct hash. */
  proved = 0;
  /** Number of lines with a wrong hash. */
  edited = 0;
  lost = 0;
  lastCheckpointAt: string | null = null;
  reported = 0;
  /**
   * The hash functions that the chain could use. After the first line with a correct hash, only the function that
   * matched this line remains.
   */
  #hashes: readonly LineHash[];
  /** The hashes that the newest line could have. Empty if its hash is unknown; several if the line was edited. */
  #previous: readonly string[] = [];
  #expected: number;
  #gaps: Range[] = [];
  /**
   * Whether a gap was dropped because the list of gaps was full. If so, a line out of order cannot be distinguished
   * from a repeated line.
   */
  #forgotGap = false;
  /**
   * The newest gap in the line numbers; null once a line in order has followed. An attacker who changes the number of
   * one line also causes a gap: lines 5, 9, 7 mean that line 6 was renumbered to 9. In this example, `resume` is 7.
   */
  #jump: { readonly finding: Finding; readonly resume: number } | null = null;
  readonly #onFinding: (finding: Finding) => void;

  constructor(first: SealedLine, { given, plain, tree }: LineHashes, report: (finding: Finding) => void) {
    this.id = first.id;
    this.#expected = first.sequence;
    const algorithm = first.checkpoint?.algorithm;
    if (algorithm === 'sha256') this.#hashes = [plain];
    else if (algorithm === treeAlgorithm) this.#hashes = [tree];
    else if (algorithm === undefined) this.#hashes = [...new Set([...given, tree])];
    else this.#hashes = given.filter(({ secret }) => secret !== null);
    this.#onFinding = report;
  }

  /**
   * Whether the lines are hashed with one of the given secrets. If so, only a holder of that secret can have written
   * them.
   */
  get isUnderSecret(): boolean {
    const secret = this.#hashes[0]?.secret ?? null;
    return this.proved > 0 && secret !== null && secret !== treeAlgorithm;
  }

  /** Whether the lines are hashed with a secret that was not given. If so, their hashes are not verified. */
  get lacksSecret(): boolean {
    return this.#hashes.length === 0;
  }

  /**
   * Whether several hash functions are still possible, because no line has shown which one the chain uses. The chain
   * could also use a secret that was not given.
   */
  get hasUnknownHash(): boolean {
    return this.#hashes.length > 1;
  }

  /** Whether the lines are leaves of a Merkle tree. If so, signed checkpoints can cover them. */
  get isTree(): boolean {
    return this.#hashes[0]?.secret === treeAlgorithm;
  }

  /**
   * Verifies the next line of this chain.
   * @returns whether the hash of the line is correct; false if the line is repeated or comes after later lines
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
    // Only the newest line counts: if an earlier line stated the end of the chain, this line shows that the chain went
    // on.
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
    // The previous hash is unknown after a gap, and for the first line of this chain in the input. A checkpoint line
    // itself states the previous hash, so a checkpoint line can be verified in both cases.
    const isKnown = this.#previous.length > 0 || line.checkpoint === null;
    const previous = isKnown ? this.#previous : [line.checkpoint.previous];
    if (previous.length === 0 || this.lacksSecret) {
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
    const message = `line ${line.sequence} of the chain was changed: its hash does not match`;
    this.#report({ ...place, kind: 'edited', message });
    // Perhaps only the hash of this line was changed. In that case, the next line continues from the hash that is
    // computed here.
    const computed = this.#hashes.map((hashes) => previous.map((one) => hashes.ofLine(one, line.bytes)));
    this.#previous = [line.hash, ...computed.flat()];
    return false;
  }

  #jumpTo(line: SealedLine, place: Position): void {
    const gap = { from: this.#expected, to: line.sequence - 1 };
    const message = `before this line, the log lacks ${rangeText(gap)} of the chain`;
    const finding: Finding = { ...place, kind: 'missing', message };
    this.#report(finding);
    this.#jump = { finding, resume: this.#expected + 1 };
    this.#gaps.push(gap);
    this.#boundGaps();
    this.#previous = [];
  }

  /**
   * Withdraws the last gap, because a changed line number caused it. Lines 5, 9, 7 mean that line 6 was renumbered to
   * 9; no line is missing.
   * @param sequence the number of the line after the changed one, 7 in this example
   */
  #undoJump(sequence: number): void {
    if (this.#jump !== null) {
      this.#jump.finding.kind = 'edited';
      this.#jump.finding.message = `a line of the chain was changed: its number should be ${sequence - 1}`;
    }
    // Removes the gap that the changed number caused. Lines that came late may have split this gap into several. If the
    // list was full, the gap was not stored.
    this.#gaps = this.#gaps.filter(({ from }) => from < sequence - 1);
    this.#jump = null;
    this.#previous = this.newest === null ? [] : [this.newest.hash];
  }

  #late({ sequence }: SealedLine, place: Position): void {
    // The first line of the gap exists (line 6 in the example of `#undoJump`), so no renumbered line caused the gap.
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
      this.#report({ ...place, kind: 'repeated', message: `line ${sequence} of the chain is repeated` });
    } else {
      this.#report({
        ...place,
        kind: 'reordered',
        message: `line ${sequence} of the chain is out of order: it comes after a line with a higher number`,
      });
    }
  }

  #boundGaps(): void {
    if (this.#gaps.length <= mostGaps) return;
    this.#gaps.pop();
    this.#forgotGap = true;
  }
}

/** How far signatures and the registry's receipts cover a run (the lines of one gateway process in one file). */
export interface RunProof {
  readonly run: string;
  /** The name of the gateway in the newest checkpoint of the run; null without a checkpoint. */
  readonly name: string | null;
  /** Number of the last line that the newest matching checkpoint covers. 0 if no checkpoint matches the lines. */
  readonly signedTo: number;
  /** When the gateway signed the newest matching checkpoint, in milliseconds since 1970; null without one. */
  readonly signedAt: number | null;
  /**
   * Number of the last line that the newest matching checkpoint with a receipt covers. 0 without such a checkpoint. In
   * a receipt, the registry signs that it stored the checkpoint.
   */
  readonly witnessedTo: number;
  /** When the registry signed the receipt for `witnessedTo`, in milliseconds since 1970; null without a receipt. */
  readonly witnessedAt: number | null;
  /** How many of the given lines come after the line `signedTo`. */
  readonly unsigned: number;
  /** Number of signed lines that are missing at the end of the run; all signed lines if the run has no line left. */
  readonly missing: number;
}

/** The result of verifying a log. */
export interface Verdict {
  /** Whether there are no findings (defects of the log). */
  readonly intact: boolean;
  readonly lines: number;
  /** The number of requests in the lines of all chains. One line can be about several requests. */
  readonly requests: number;
  readonly chains: readonly ChainCheck[];
  /** How far signatures cover the lines of each gateway process; null if no checkpoints were given. */
  readonly proofs: readonly RunProof[] | null;
  /** Findings from signatures, then other findings. Both contain the first 1,000 of each kind, in detection order. */
  readonly findings: readonly Finding[];
  /** The number of all findings, including those that `findings` omits. */
  readonly findingCount: number;
  /** Remarks that report no defect: for example, what could not be verified, or a hint about a wrong secret. */
  readonly notes: readonly string[];
}

/** Formats the result of a verification as one sentence. */
export function verdictText({ intact, lines, findingCount, proofs }: Verdict): string {
  const proof =
    proofs === null
      ? 'no signed checkpoints were given'
      : `${counted(proofs.length, 'log run')} compared with signed checkpoints`;
  return `${intact ? 'Intact' : 'NOT INTACT'}: ${counted(findingCount, 'finding')} in ${counted(lines, 'line')}, ${proof}.`;
}
