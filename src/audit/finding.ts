/** A position in a log: the file as given on the command line, and the line number from 1. */
export interface Position {
  readonly file: string;
  readonly line: number;
}

/** `file:line`. */
export function positionText({ file, line }: Position): string {
  return `${file}:${line}`;
}

/** `1 line`, `2 lines`. */
export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

/** Kinds of findings. */
type FindingKind =
  /** The bytes of a line do not match its hash. */
  | 'edited'
  /** Lines before this one are missing. */
  | 'missing'
  /** A line comes after a line that was written later. */
  | 'reordered'
  /** A line occurs again here. */
  | 'repeated'
  /** No gateway wrote this line. */
  | 'foreign'
  /** The first lines of the chain that begins here are missing. */
  | 'headless'
  /** A chain ends here without its end checkpoint. */
  | 'truncated'
  /** A chain was hashed without the secret. */
  | 'unkeyed'
  /** A run has no signed checkpoint, or a signed checkpoint is invalid. */
  | 'unsigned'
  /** The witness removed or changed a checkpoint that it signed. */
  | 'rewritten'
  /** Two signed statements contradict each other. */
  | 'forked';

/** A defect of a log and its position. */
export interface Finding extends Position {
  kind: FindingKind;
  message: string;
}

/** Limit per kind, so that many findings of one kind do not hide those of another kind. */
const mostOfKind = 1_000;

/** The first 1,000 findings of each kind. */
class FirstOfKind {
  readonly kept: Finding[] = [];
  readonly #counts = new Map<FindingKind, number>();

  add(finding: Finding): void {
    const count = (this.#counts.get(finding.kind) ?? 0) + 1;
    if (count > mostOfKind) return;
    this.#counts.set(finding.kind, count);
    this.kept.push(finding);
  }
}

/**
 * The findings of a log. Counts all of them and keeps the first 1,000 of each kind. Findings from signatures have their
 * own limits: anyone can invent chains whose gaps would use up the limits of the others.
 */
export class Findings {
  readonly #ofLines = new FirstOfKind();
  readonly #ofSignatures = new FirstOfKind();
  count = 0;

  /** The kept findings: first those from signatures. */
  get kept(): Finding[] {
    return [...this.#ofSignatures.kept, ...this.#ofLines.kept];
  }

  report(finding: Finding): void {
    this.count += 1;
    this.#ofLines.add(finding);
  }

  /** Reports a difference between the log and signed checkpoints. */
  reportSigned(finding: Finding): void {
    this.count += 1;
    this.#ofSignatures.add(finding);
  }
}

/** `line 5`, `the 3 lines 5 to 7`. */
export function rangeText({ from, to }: { readonly from: number; readonly to: number }): string {
  return from === to ? `line ${from}` : `the ${to - from + 1} lines ${from} to ${to}`;
}

/** `the 4 lines 1 to 4 of the chain …`: what precedes a line of a chain. */
export function linesBefore({ sequence, id }: { readonly sequence: number; readonly id: string }): string {
  return sequence === 1
    ? `the beginning of the chain ${id}`
    : `${rangeText({ from: 1, to: sequence - 1 })} of the chain ${id}`;
}
