import { chainHash, type LogSecret, treeAlgorithm } from '../telemetry/chain.js';
import { type Finding, type Place, rangeText } from './finding.js';
import type { SealedLine } from './sealed-line.js';

interface Range {
  readonly from: number;
  readonly to: number;
}

/** Remembered at most, so that a log of nothing but gaps needs no more memory, and no more time for each line. */
const mostGaps = 1_000;

/** One chain of a log, checked line by line in the order of the files. */
export class ChainCheck {
  readonly id: string;
  /** The number and the hash of the newest line, as it tells them, and where it stands. */
  newest: { readonly sequence: number; readonly hash: string; readonly place: Place } | null = null;
  /** Whether its newest line is known to be its last: it says so, or the process behind it does. */
  closed = false;
  /** Whether its last line says that it goes on in another file. */
  goesOn = false;
  /** The chain in the next file, where its last line names one. */
  next: string | null = null;
  lines = 0;
  /** Lines that stand only for the beginning of what follows, because the hash before them is not known. */
  unchecked = 0;
  /** Lines that are what was written, and that are not: as far as their hash tells. */
  proved = 0;
  edited = 0;
  lost = 0;
  lastCheckpointAt: string | null = null;
  /** Those under one of which the lines are hashed; one when it is known which. */
  #secrets: readonly (LogSecret | typeof treeAlgorithm)[];
  /** What the hash before the next line may be: empty where it is not known, two where the newest line is edited. */
  #previous: readonly string[] = [];
  #expected: number;
  #gaps: Range[] = [];
  /** There was one more gap than is remembered: no late line is known to be there twice any more. */
  #forgotGap = false;
  /** The last jump, and the number with which the chain goes on if that was no jump but a changed number. */
  #jump: { readonly finding: Finding; readonly resume: number } | null = null;
  readonly #report: (finding: Finding) => void;

  constructor(first: SealedLine, secrets: readonly LogSecret[], report: (finding: Finding) => void) {
    this.id = first.id;
    this.#expected = first.sequence;
    const algorithm = first.checkpoint?.algorithm;
    if (algorithm === 'sha256') this.#secrets = [null];
    else if (algorithm === treeAlgorithm) this.#secrets = [treeAlgorithm];
    else this.#secrets = algorithm === undefined ? [...secrets, treeAlgorithm] : secrets;
    this.#report = report;
  }

  /** Whether its lines are hashed under a secret that was given, so that whoever lacks it cannot have made them. */
  get isUnderSecret(): boolean {
    return this.proved > 0 && typeof this.#secrets[0] === 'object' && this.#secrets[0] !== null;
  }

  /** Whether its lines are the leaves of a tree, so that they may be signed. */
  get isTree(): boolean {
    return this.#secrets[0] === treeAlgorithm;
  }

  /**
   * Checks the next line of this chain.
   * @returns whether it is proved to be what was written
   */
  check(line: SealedLine, place: Place): boolean {
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
    // A line behind the one that closed it opens it again, whoever named that one.
    this.closed = line.checkpoint?.reason === 'end' || this.next !== null;
    if (line.checkpoint !== null) {
      this.lost = line.checkpoint.lost;
      this.lastCheckpointAt = line.checkpoint.at;
    }
    return isProved;
  }

  #checkHash(line: SealedLine, place: Place): boolean {
    // Of the first line that is there, and behind a gap, the hash before is known from a checkpoint alone.
    const told = line.checkpoint === null ? [] : [line.checkpoint.previous];
    const previous = this.#previous.length > 0 ? this.#previous : told;
    if (previous.length === 0) {
      this.unchecked += 1;
      this.#previous = [line.hash];
      return false;
    }
    const computed: string[] = [];
    for (const secret of this.#secrets) {
      for (const one of previous) {
        const hash = chainHash(secret, one, line.text);
        if (hash === line.hash) {
          this.#secrets = [secret];
          this.#previous = [hash];
          this.proved += 1;
          return true;
        }
        computed.push(hash);
      }
    }
    this.edited += 1;
    this.#report({ ...place, kind: 'edited', message: `line ${line.sequence} of its chain is not what was written` });
    // The hash may be what was changed, and then the line behind this one goes on from the right one.
    this.#previous = [line.hash, ...computed];
    return false;
  }

  #jumpTo(line: SealedLine, place: Place): void {
    const gap = { from: this.#expected, to: line.sequence - 1 };
    const finding: Finding = {
      ...place,
      kind: 'missing',
      message: `${rangeText(gap)} of its chain should stand before`,
    };
    this.#report(finding);
    this.#jump = { finding, resume: this.#expected + 1 };
    this.#gaps.push(gap);
    this.#boundGaps();
    this.#previous = [];
  }

  /** The line before had a changed number: the ones behind it go on as if it had not. */
  #undoJump(sequence: number): void {
    if (this.#jump !== null) {
      this.#jump.finding.kind = 'edited';
      this.#jump.finding.message = `line ${sequence - 1} of its chain is not what was written: its number is changed`;
    }
    // That line is where the gap would begin; it may have had no room, or have been parted by lines that came since.
    this.#gaps = this.#gaps.filter(({ from }) => from < sequence - 1);
    this.#jump = null;
    this.#previous = this.newest === null ? [] : [this.newest.hash];
  }

  #late({ sequence }: SealedLine, place: Place): void {
    // Here is the line that the jump would have been with its number changed: the line that jumped is another one.
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
      this.#report({ ...place, kind: 'repeated', message: `line ${sequence} of its chain stands here once more` });
    } else {
      this.#report({ ...place, kind: 'reordered', message: `line ${sequence} of its chain stands behind later ones` });
    }
  }

  #boundGaps(): void {
    if (this.#gaps.length <= mostGaps) return;
    this.#gaps.pop();
    this.#forgotGap = true;
  }
}

/** What findings that are many may come from, where whoever verifies may have made a mistake. */
export function hintsOf(findings: readonly Finding[], chains: readonly ChainCheck[]): string[] {
  const isLate = findings.some(({ kind }) => kind === 'repeated' || kind === 'reordered');
  return [
    ...secretHint(chains),
    ...(isLate ? ['lines stand behind later ones: are the files in order, oldest first?'] : []),
  ];
}

/** Under another secret each line of a chain looks edited; one line that is alone may well be. */
function secretHint(chains: readonly ChainCheck[]): string[] {
  const isProvedAnywhere = chains.some(({ proved }) => proved > 0);
  const [first, ...more] = chains.filter(({ proved, edited }) => proved === 0 && edited > (isProvedAnywhere ? 1 : 0));
  if (first === undefined) return [];
  if (!isProvedAnywhere) return ['not one line is proved: is it the right secret?'];
  const which = `the chain ${first.id}${more.length === 0 ? '' : ` and of ${more.length} more`}`;
  return [`not one line of ${which} is proved: was the secret another one then? It is named by a second --secret-file`];
}

/** How far a run is proved by its signatures. */
export interface RunProof {
  readonly run: string;
  /** The name of the instance that signed; null where nothing is signed. */
  readonly name: string | null;
  /** The lines from the first to this one are what was signed; 0 for none. */
  readonly signedTo: number;
  /** When that was signed, in milliseconds since 1970; null where nothing is. */
  readonly signedAt: number | null;
  /** How many lines stand behind them, under no signature. */
  readonly unsigned: number;
}

/** What was found out about a log. */
export interface Verdict {
  /** Whether nothing is wrong. */
  readonly intact: boolean;
  readonly lines: number;
  /** Requests that the lines of chains stand for: several may share a line. */
  readonly requests: number;
  readonly chains: readonly ChainCheck[];
  /** How far each chain is proved by signatures; null where no checkpoints were given. */
  readonly proofs: readonly RunProof[] | null;
  /** The first of each kind, in the order of the lines. */
  readonly findings: readonly Finding[];
  /** How many there are in all. */
  readonly findingCount: number;
  /** What cannot be proved, and is no sign of a change. */
  readonly notes: readonly string[];
}
